// Results as JSON and as lines for a person. The JSON keys are what bench/gpu_report.py reads.
//
// Thread safety: plain functions.
#ifndef GPUPOOL_BENCH_PEERS_REPORT_H_
#define GPUPOOL_BENCH_PEERS_REPORT_H_

#include <nlohmann/json.hpp>
#include <string>

#include "bench/peers/result.h"

namespace gpupool::bench {

using Json = nlohmann::ordered_json;

Json to_json(const SystemResult& result);

/// Several lines, each with its end.
std::string to_text(const SystemResult& result);

}  // namespace gpupool::bench

#endif  // GPUPOOL_BENCH_PEERS_REPORT_H_
