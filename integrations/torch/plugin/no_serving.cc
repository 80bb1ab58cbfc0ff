// For a build without the exporter.
#include "integrations/torch/plugin/serving.h"

namespace gpupool::torch {

Result<std::string, Status> serve(Pool& /*pool*/, const Config& /*config*/) {
  return Status{Error::not_supported, "this library was built without the exporter"};
}

void retire_serving() {}

}  // namespace gpupool::torch
