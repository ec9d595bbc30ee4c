<!DOCTYPE qgis PUBLIC 'http://mrcc.com/qgis.dtd' 'SYSTEM'>
<qgis version="3.22" styleCategories="AllStyleCategories">
  <pipe>
    <provider>
      <resampling enabled="false" zoomedInResamplingMethod="nearestNeighbour" zoomedOutResamplingMethod="nearestNeighbour" maxOversampling="2" />
    </provider>
    <rasterrenderer type="paletted" band="1" opacity="1" alphaBand="-1" nodataColor="">
      <rasterTransparency />
      <minMaxOrigin>
        <limits>None</limits>
        <extent>WholeRaster</extent>
        <statAccuracy>Estimated</statAccuracy>
      </minMaxOrigin>
      <colorPalette>
        <paletteEntry value="0" color="#000000" alpha="0" label="no change" />
        <paletteEntry value="1" color="#e63c1e" alpha="255" label="change" />
      </colorPalette>
    </rasterrenderer>
  </pipe>
  <renderer-v2 type="singleSymbol" symbollevels="0">
    <symbols>
      <symbol name="0" type="fill" alpha="1">
        <layer class="SimpleFill" enabled="1" locked="0">
          <Option type="Map">
            <Option name="style" type="QString" value="no" />
            <Option name="outline_style" type="QString" value="solid" />
            <Option name="outline_color" type="QString" value="230,60,30,255" />
            <Option name="outline_width" type="QString" value="0.5" />
            <Option name="outline_width_unit" type="QString" value="MM" />
            <Option name="joinstyle" type="QString" value="miter" />
          </Option>
        </layer>
      </symbol>
    </symbols>
  </renderer-v2>
  <layerGeometryType>2</layerGeometryType>
</qgis>
