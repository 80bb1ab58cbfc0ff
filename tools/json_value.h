// Values that may be missing, as JSON has them.
#ifndef GPUPOOL_TOOLS_JSON_VALUE_H_
#define GPUPOOL_TOOLS_JSON_VALUE_H_

#include <nlohmann/json.hpp>
#include <optional>

namespace gpupool::tools {

template <class T>
nlohmann::ordered_json or_null(const std::optional<T>& value) {
  return value ? nlohmann::ordered_json(*value) : nlohmann::ordered_json(nullptr);
}

}  // namespace gpupool::tools

#endif  // GPUPOOL_TOOLS_JSON_VALUE_H_
