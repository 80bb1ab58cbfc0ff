// The results of a comparison as text: tables for people, JSON for scripts.
//
// The JSON keys are a contract: scripts read them. Thread safety: plain functions.
#ifndef GPUPOOL_TOOLS_COMPARE_REPORT_H_
#define GPUPOOL_TOOLS_COMPARE_REPORT_H_

#include <string>
#include <vector>

#include "tools/compare/comparison.h"
#include "tools/terminal/terminal.h"

namespace gpupool::tools {

struct Comparison {
  std::vector<ClassicRow> classic;
  std::vector<TraceRow> traces;  // those of one trace follow each other
};

/// One object with the setting and all rows, and a line end.
std::string to_json(const Comparison& comparison, const CompareOptions& options);

/// What was played on, the classic test, and the traces, each with a row for each system. Ours has
/// an asterisk. Fits 100 columns.
std::string to_tables(const Comparison& comparison, const CompareOptions& options,
                      const Terminal& terminal);

}  // namespace gpupool::tools

#endif  // GPUPOOL_TOOLS_COMPARE_REPORT_H_
