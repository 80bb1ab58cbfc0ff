#include "tools/snapshot/page_map.h"

#include <string>

namespace gpupool::tools {
namespace {

/// States and tiers: a list of numbers there, a digit each here.
std::string digits(const Checked& list) {
  std::string text;
  for (std::size_t i = 0; i < list.size(); ++i) {
    const std::uint64_t digit = list.at(i).whole();
    if (digit > 9) throw NotAsExpected(list.at(i).place() + " is no digit");
    text += static_cast<char>('0' + digit);
  }
  return text;
}

Json columns(const Checked& blocks, const char* offset_key) {
  return {{"count", blocks.at("count").whole()},         {"shown", blocks.at("shown").whole()},
          {offset_key, blocks.at("offset").array()},     {"bytes", blocks.at("bytes").array()},
          {"requested", blocks.at("requested").array()}, {"state", digits(blocks.at("state"))},
          {"tier", digits(blocks.at("tier"))},           {"tag", blocks.at("tag").array()},
          {"stream", blocks.at("stream").array()},       {"age_ms", blocks.at("ageMs").array()}};
}

}  // namespace

Json snapshot_of_page(const Checked& map, const Checked& stats) {
  Json snapshot = {{"schema", "gpupool.snapshot"},
                   {"version", 1},
                   {"sequence", map.at("sequence").whole()},
                   {"pool", map.at("pool").text()},
                   {"time_ms", map.at("timeMs").whole()}};
  snapshot["arena"] = {{"base_address", map.at("baseAddress").whole()},
                       {"backing", map.at("backing").text()},
                       {"range_used_bytes", map.at("rangeBytes").whole()},
                       {"held_bytes", map.at("heldBytes").whole()},
                       {"limit_in_force_bytes", map.at("limitBytes").whole()},
                       {"largest_free_block_bytes", map.at("largestFreeBytes").whole()},
                       {"largest_satisfiable_bytes", stats.at("largest_satisfiable_bytes").whole()},
                       {"fragmentation_ratio", stats.at("fragmentation_ratio").number()}};
  snapshot["pages"] = {{"bytes", map.at("pageBytes").whole()},
                       {"mapped", map.at("pagesMapped").whole()},
                       {"empty", map.at("pagesEmpty").whole()}};
  for (const char* key : {"free_runs_by_log2", "free_run_bytes_by_log2", "free_buddies_by_log2"}) {
    stats.at(key).array();
  }
  snapshot["runs"] = {{"count", stats.at("runs").whole()},
                      {"chunks", stats.at("chunks").whole()},
                      {"slabs", stats.at("slabs").whole()},
                      {"free_by_log2", stats.json()["free_runs_by_log2"]},
                      {"free_bytes_by_log2", stats.json()["free_run_bytes_by_log2"]},
                      {"free_buddies_by_log2", stats.json()["free_buddies_by_log2"]}};
  for (const char* key : {"states", "tiers", "tags", "streams"}) {
    snapshot[key] = map.at(key).array();
  }
  snapshot["blocks"] = columns(map.at("blocks"), "offset");
  snapshot["fallbacks"] = columns(map.at("fallbacks"), "address");
  return snapshot;
}

}  // namespace gpupool::tools
