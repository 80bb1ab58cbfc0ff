// The section `torch` of a configuration: what the PyTorch plug-in does. Everybody else reads it,
// so that its mistakes are found, and does nothing with it.
//
// Thread safety: plain functions. Cost: that of reading a few values.
#ifndef GPUPOOL_EXPORTER_CONFIG_TORCH_SECTION_H_
#define GPUPOOL_EXPORTER_CONFIG_TORCH_SECTION_H_

#include "exporter/config/error_list.h"
#include "exporter/config/yaml_document.h"
#include "gpupool/exporter/config.h"

namespace gpupool::internal {

void read_torch(const YamlNode& node, TorchOptions& torch, ErrorList& errors);

}  // namespace gpupool::internal

#endif  // GPUPOOL_EXPORTER_CONFIG_TORCH_SECTION_H_
