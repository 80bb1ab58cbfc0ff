// The section `exporter` of a configuration: where is served, what, and to whom.
//
// Thread safety: plain functions. Cost: that of reading a few values.
#ifndef GPUPOOL_EXPORTER_CONFIG_EXPORTER_SECTION_H_
#define GPUPOOL_EXPORTER_CONFIG_EXPORTER_SECTION_H_

#include "exporter/config/error_list.h"
#include "exporter/config/yaml_document.h"
#include "gpupool/exporter/config.h"

namespace gpupool::internal {

void read_exporter(const YamlNode& node, ExporterOptions& options, ErrorList& errors);

}  // namespace gpupool::internal

#endif  // GPUPOOL_EXPORTER_CONFIG_EXPORTER_SECTION_H_
