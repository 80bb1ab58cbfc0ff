// What a client can read, by its Accept and Accept-Encoding headers (RFC 9110, 12.5): weights (q)
// are honoured, and of several ranges that name a thing the most precise one counts.
//
// Thread safety: plain functions. Cost: one pass over the header.
#ifndef GPUPOOL_EXPORTER_HTTP_NEGOTIATION_H_
#define GPUPOOL_EXPORTER_HTTP_NEGOTIATION_H_

#include <cstdint>
#include <string_view>

namespace gpupool::internal {

enum class MetricsFormat : std::uint8_t {
  text,                // text format 0.0.4
  openmetrics,         // 1.0.0
  openmetrics_v0_0_1,  // the same under its older name, for who knows that alone
};

/// Text unless OpenMetrics is asked for by name and weighs at least as much. Also text where
/// nothing that we have is accepted: an answer that can be read by eye is of more use than none.
MetricsFormat choose_metrics_format(std::string_view accept);
const char* content_type_of(MetricsFormat format) noexcept;

/// Whether gzip is accepted; `gzip;q=0` says no, and no header does not say yes.
bool is_gzip_accepted(std::string_view accept_encoding);

}  // namespace gpupool::internal

#endif  // GPUPOOL_EXPORTER_HTTP_NEGOTIATION_H_
