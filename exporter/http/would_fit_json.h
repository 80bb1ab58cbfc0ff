// What the pool itself says of a request that nobody has made, as JSON.
//
//   {"schema": "gpupool.would_fit", "version": 1, "pool": "default", "bytes": 1073741824,
//    "stream": 3, "fit": "by_growth", "largest_free_block_bytes": ..., ...}
//
// Where a stream was named, the answer is for that one, which has what it freed itself at once.
// Thread safety: plain functions. Cost: one search of the pool, under its lock; one Pool::stats().
#ifndef GPUPOOL_EXPORTER_HTTP_WOULD_FIT_JSON_H_
#define GPUPOOL_EXPORTER_HTTP_WOULD_FIT_JSON_H_

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>

#include "exporter/http/endpoints.h"
#include "exporter/http/query.h"
#include "gpupool/pool.h"
#include "gpupool/stats.h"

namespace gpupool::internal {

/// The parameter bytes=N, from 1; the error says what is wrong with it.
Result<std::uint64_t, std::string> read_fit_bytes(const Query& query);

/// `stats` are the pool's; those of them that say why are part of the answer.
Document fit_document(std::string_view pool, std::uint64_t bytes,
                      std::optional<std::uint64_t> stream, Fit fit, const StatsV1& stats);

/// Parameters: bytes=N, from 1; stream=NUMBER, one that the snapshot has. The error is what is
/// wrong with them.
Result<Document, std::string> would_fit_document(const Pool& pool, const Query& query);

}  // namespace gpupool::internal

#endif  // GPUPOOL_EXPORTER_HTTP_WOULD_FIT_JSON_H_
