// Figures as JSON and as lines for a person. The JSON keys are what bench/recycling_report.py
// reads.
//
// Thread safety: plain functions.
#ifndef GPUPOOL_TESTS_GPU_REPLAY_REPORT_H_
#define GPUPOOL_TESTS_GPU_REPLAY_REPORT_H_

#include <nlohmann/json.hpp>
#include <string>

#include "tests/gpu/replay/figures.h"
#include "tests/gpu/replay/probes.h"
#include "tests/gpu/replay/setting.h"

namespace gpupool::gpu_tests {

using Json = nlohmann::ordered_json;

Json to_json(const Setting& setting);
Json to_json(const TraceFigures& figures);
Json to_json(const AliasCase& figures);
Json to_json(const ChainCase& figures);

/// One line for each mode in which the trace was played, with its end.
std::string to_text(const TraceFigures& figures);
std::string to_text(const AliasCase& figures);
std::string to_text(const ChainCase& figures);

}  // namespace gpupool::gpu_tests

#endif  // GPUPOOL_TESTS_GPU_REPLAY_REPORT_H_
