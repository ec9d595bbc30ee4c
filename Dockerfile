# The command with everything analysts need.
#   docker build -t adadino .                              CPU
#   docker build -t adadino --build-arg TORCH=cu126 .      NVIDIA GPU; run with --gpus all
# TORCH is the name of an index below https://download.pytorch.org/whl. Its CUDA wheels bring their
# own libraries, so one base image serves both; the host has the driver.
FROM python:3.12-slim

ARG TORCH=cpu
ARG EXTRAS=geo,web,hub,export

# rasterio's wheel brings GDAL, but not the XML parser it links to.
RUN apt-get update \
    && apt-get install -y --no-install-recommends libexpat1 \
    && rm -rf /var/lib/apt/lists/*

WORKDIR /opt/adadino
COPY constraints.txt ./
# torch first, in a layer of its own: it is by far the largest, and changes least.
RUN pip install --no-cache-dir -c constraints.txt torch \
        --index-url "https://download.pytorch.org/whl/${TORCH}"
COPY pyproject.toml README.md LICENSE NOTICE ./
COPY src ./src
RUN pip install --no-cache-dir -c constraints.txt ".[${EXTRAS}]"

# Results belong to whoever runs the container: add --user "$(id -u):$(id -g)".
RUN useradd --create-home analyst
USER analyst
WORKDIR /data
ENTRYPOINT ["adadino"]
CMD ["--help"]
