#include <chrono>
#include <utility>

#include "gpupool/exporter/exporter.h"
#include "integrations/torch/plugin/serving.h"

namespace gpupool::torch {

Result<std::string, Status> serve(Pool& pool, const ExporterOptions& options) {
  // The plug-in has an upkeep thread of its own, with or without an exporter.
  auto exporter = Exporter::start(pool, options, std::chrono::milliseconds(0));
  if (!exporter.ok()) return exporter.error();
  // Never stopped: that takes up to 2 s, and would be at the process's end.
  return exporter.value().release()->url();
}

}  // namespace gpupool::torch
