#include "exporter/http/would_fit_json.h"

#include <cstdint>
#include <string_view>

#include "exporter/http/json_writer.h"

namespace gpupool::internal {
namespace {

constexpr std::string_view kFitSchema = "gpupool.would_fit";
constexpr int kFitVersion = 1;

Result<Fit, std::string> ask(const Pool& pool, std::uint64_t bytes, const Query& query) {
  if (query.find("stream") == nullptr) return pool.would_fit(bytes);
  const auto stream = query.number("stream", 0);
  if (!stream.ok()) return stream.error();
  if (const auto fit = pool.would_fit_on(bytes, stream.value())) return *fit;
  return "parameter 'stream' is " + std::to_string(stream.value()) +
         "; the pool knows no stream of that number";
}

}  // namespace

Result<std::uint64_t, std::string> read_fit_bytes(const Query& query) {
  if (query.find("bytes") == nullptr) return std::string("parameter 'bytes' is missing");
  auto bytes = query.number("bytes", 0);
  if (bytes.ok() && bytes.value() == 0) {
    return std::string("parameter 'bytes' is 0, which is no request; allowed is 1 and more");
  }
  return bytes;
}

Document fit_document(std::string_view pool, std::uint64_t bytes,
                      std::optional<std::uint64_t> stream, Fit fit, const StatsV1& stats) {
  JsonWriter json;
  json.begin_object();
  json.field("schema", kFitSchema);
  json.field("version", kFitVersion);
  json.field("pool", pool);
  json.field("bytes", bytes);
  if (stream) json.field("stream", *stream);
  json.field("fit", to_string(fit));
  json.field("largest_free_block_bytes", stats.largest_free_block_bytes);
  json.field("largest_satisfiable_bytes", stats.largest_satisfiable_bytes);
  json.field("free_bytes", stats.free_bytes);
  json.field("pending_bytes", stats.pending_bytes);
  json.field("cached_bytes", stats.cached_bytes);
  json.field("held_bytes", stats.held_bytes);
  json.field("limit_in_force_bytes", stats.limit_in_force_bytes);
  json.end_object();
  // What is true now need not be in a moment: there is no version to keep.
  return {.body = json.take() + "\n", .packed_body = "", .version = ""};
}

Result<Document, std::string> would_fit_document(const Pool& pool, const Query& query) {
  const auto bytes = read_fit_bytes(query);
  if (!bytes.ok()) return bytes.error();
  const auto fit = ask(pool, bytes.value(), query);
  if (!fit.ok()) return fit.error();
  std::optional<std::uint64_t> stream;
  if (query.find("stream") != nullptr) stream = query.number("stream", 0).value();
  return fit_document(pool.name(), bytes.value(), stream, fit.value(), pool.stats());
}

}  // namespace gpupool::internal
