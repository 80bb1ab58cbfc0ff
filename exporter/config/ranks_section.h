// The parts of the section `exporter` that tell the processes of a job apart.
//
// Thread safety: plain functions. Cost: that of reading a few values.
#ifndef GPUPOOL_EXPORTER_CONFIG_RANKS_SECTION_H_
#define GPUPOOL_EXPORTER_CONFIG_RANKS_SECTION_H_

#include "exporter/config/error_list.h"
#include "exporter/config/yaml_document.h"
#include "gpupool/exporter/config.h"

namespace gpupool::internal {

void read_job(const YamlNode& node, JobOptions& job, ErrorList& errors);
void read_discovery(const YamlNode& node, DiscoveryOptions& discovery, ErrorList& errors);

}  // namespace gpupool::internal

#endif  // GPUPOOL_EXPORTER_CONFIG_RANKS_SECTION_H_
