// The options of a pool as its configuration file has them.
#ifndef GPUPOOL_TESTS_CASES_CONFIG_POOL_H_
#define GPUPOOL_TESTS_CASES_CONFIG_POOL_H_

#include <gtest/gtest.h>

#include <string>
#include <string_view>

#include "gpupool/exporter/config.h"

namespace gpupool::test {

/// `pool`: what stands under `pool:`, in flow style.
inline std::string as_yaml(std::string_view pool) {
  return "version: 1\npool: {" + std::string(pool) + "}\n";
}

inline PoolOptions configured(std::string_view pool) {
  auto config = parse_config(as_yaml(pool));
  if (config.ok()) return config.value().pool;
  for (const ConfigError& error : config.error()) ADD_FAILURE() << error.text("case.yaml");
  return {};
}

}  // namespace gpupool::test

#endif  // GPUPOOL_TESTS_CASES_CONFIG_POOL_H_
