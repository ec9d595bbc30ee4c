<!DOCTYPE qgis PUBLIC 'http://mrcc.com/qgis.dtd' 'SYSTEM'>
<qgis version="3.22" styleCategories="AllStyleCategories">
  <pipe>
    <provider>
      <resampling enabled="false" zoomedInResamplingMethod="nearestNeighbour" zoomedOutResamplingMethod="nearestNeighbour" maxOversampling="2" />
    </provider>
    <rasterrenderer type="singlebandpseudocolor" band="1" opacity="1" alphaBand="-1" nodataColor="" classificationMin="0" classificationMax="1">
      <rasterTransparency />
      <minMaxOrigin>
        <limits>None</limits>
        <extent>WholeRaster</extent>
        <statAccuracy>Estimated</statAccuracy>
      </minMaxOrigin>
      <rastershader>
        <colorrampshader colorRampType="INTERPOLATED" classificationMode="1" clip="0" minimumValue="0" maximumValue="1">
          <item value="0" color="#e63c1e" alpha="0" label="0%" />
          <item value="0.25" color="#e63c1e" alpha="64" label="25%" />
          <item value="0.5" color="#e63c1e" alpha="128" label="50%" />
          <item value="0.75" color="#e63c1e" alpha="191" label="75%" />
          <item value="1" color="#e63c1e" alpha="255" label="100%" />
        </colorrampshader>
      </rastershader>
    </rasterrenderer>
  </pipe>
</qgis>
