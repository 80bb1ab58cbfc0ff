// For a build without the exporter.
#include "integrations/torch/plugin/serving.h"

namespace gpupool::torch {

SlowPathObserver* keep_events(ExporterOptions& /*options*/) { return nullptr; }

Result<std::string, Status> serve(Pool& /*pool*/, const Config& /*config*/,
                                  const EventLog* /*events*/) {
  return Status{Error::not_supported, "this library was built without the exporter"};
}

void retire_serving() {}

}  // namespace gpupool::torch
