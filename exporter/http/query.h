// The parameters of a request: "since=17&resolution=15s".
//
// Thread safety: plain values. Cost: two strings a parameter.
#ifndef GPUPOOL_EXPORTER_HTTP_QUERY_H_
#define GPUPOOL_EXPORTER_HTTP_QUERY_H_

#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "gpupool/status.h"

namespace gpupool::internal {

class Query {
 public:
  /// `text` as it was sent, without the question mark. The error says for a person what is wrong: a
  /// parameter that is none of `known`, one given twice, a code (%41) that is none.
  static Result<Query, std::string> parse(std::string_view text,
                                          std::span<const std::string_view> known);

  /// nullptr where it was not given.
  const std::string* find(std::string_view name) const;
  /// A whole number, `otherwise` where it was not given; the error names the parameter.
  Result<std::uint64_t, std::string> number(std::string_view name, std::uint64_t otherwise) const;

 private:
  std::vector<std::pair<std::string, std::string>> parameters_;
};

}  // namespace gpupool::internal

#endif  // GPUPOOL_EXPORTER_HTTP_QUERY_H_
