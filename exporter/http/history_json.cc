#include "exporter/http/history_json.h"

#include <cstddef>
#include <string_view>

#include "exporter/http/json_writer.h"

namespace gpupool::internal {
namespace {

constexpr std::string_view kHistorySchema = "gpupool.history";
constexpr int kHistoryVersion = 1;

Result<Resolution, std::string> read_resolution(const Query& query) {
  const std::string* const text = query.find("resolution");
  if (text == nullptr || *text == "1s") return Resolution::fine;
  if (*text == "15s") return Resolution::coarse;
  return std::string("parameter 'resolution': allowed are 1s and 15s");
}

std::string json_of(const History::Rows& rows, Resolution resolution) {
  JsonWriter json;
  json.begin_object();
  json.field("schema", kHistorySchema);
  json.field("version", kHistoryVersion);
  json.field("resolution_seconds", resolution_seconds(resolution));
  json.begin_array("time_ms");
  for (std::size_t row = 0; row < rows.count(); ++row) {
    json.item(static_cast<std::uint64_t>(rows.at(row, 0)));
  }
  json.end_array();
  json.begin_object("columns");
  std::size_t column = 0;
  for (const HistoryColumn& named : history_columns()) {
    ++column;
    json.begin_array(named.name);
    for (std::size_t row = 0; row < rows.count(); ++row) json.item(rows.at(row, column));
    json.end_array();
  }
  json.end_object();
  json.end_object();
  return json.take() + "\n";
}

}  // namespace

Result<Document, std::string> history_document(const History& history, const Query& query) {
  const auto resolution = read_resolution(query);
  if (!resolution.ok()) return resolution.error();
  const auto since = query.number("since", 0);
  if (!since.ok()) return since.error();
  const History::Rows rows = history.rows_since(since.value(), resolution.value());
  // A row is never changed, so that its time tells what was there before it as well.
  const std::uint64_t last =
      rows.count() == 0 ? 0 : static_cast<std::uint64_t>(rows.at(rows.count() - 1, 0));
  return Document{.body = json_of(rows, resolution.value()),
                  .packed_body = "",
                  .version = std::to_string(last)};
}

}  // namespace gpupool::internal
