#include <chrono>
#include <utility>

#include "gpupool/exporter/event_log.h"
#include "gpupool/exporter/exporter.h"
#include "integrations/torch/plugin/serving.h"

namespace gpupool::torch {

SlowPathObserver* keep_events(ExporterOptions& options) {
  if (!options.enabled) return nullptr;
  auto* const log = new EventLog();
  options.events = log;
  return log;
}

Result<std::string, Status> serve(Pool& pool, const ExporterOptions& options) {
  // The plug-in has an upkeep thread of its own, with or without an exporter.
  auto exporter = Exporter::start(pool, options, std::chrono::milliseconds(0));
  if (!exporter.ok()) return exporter.error();
  // Never stopped: that takes up to 2 s, and would be at the process's end.
  return exporter.value().release()->url();
}

}  // namespace gpupool::torch
