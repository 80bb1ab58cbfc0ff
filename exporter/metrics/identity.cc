#include "exporter/metrics/identity.h"

#include <charconv>
#include <cstdlib>
#include <initializer_list>
#include <system_error>

#include "exporter/base/utf8.h"

namespace gpupool::internal {
namespace {

// A label value; longer ones would be refused by the label limit of our scrape configuration.
constexpr std::size_t kMaxLength = 128;
// What torchrun calls a run that nobody named.
constexpr std::string_view kUnnamedRun = "none";

/// Digits alone, in [low, high]: no sign, no leading zero, nothing behind.
std::optional<std::uint32_t> parse_number(std::string_view text, std::uint32_t low,
                                          std::uint32_t high) {
  if (text.empty() || (text.size() > 1 && text.front() == '0')) return std::nullopt;
  std::uint32_t value = 0;
  const char* const end = text.data() + text.size();
  const auto [stop, error] = std::from_chars(text.data(), end, value);
  if (error != std::errc() || stop != end || value < low || value > high) return std::nullopt;
  return value;
}

class Reader {
 public:
  Reader(const EnvironmentLookup& lookup, std::vector<std::string>& notes)
      : lookup_(lookup), notes_(notes) {}

  std::optional<std::uint32_t> number(std::initializer_list<const char*> names, std::uint32_t low,
                                      std::uint32_t high) {
    for (const char* name : names) {
      const char* const text = lookup_(name);
      if (text == nullptr || *text == '\0') continue;
      if (const auto value = parse_number(text, low, high)) return value;
      notes_.push_back(std::string(name) + " is '" + shown(text) +
                       "' in the environment, no whole number from " + std::to_string(low) +
                       " to " + std::to_string(high) + ": left out");
    }
    return std::nullopt;
  }

  std::string text(std::initializer_list<const char*> names) {
    for (const char* name : names) {
      const char* const value = lookup_(name);
      if (value == nullptr || *value == '\0' || value == kUnnamedRun) continue;
      return shown(value);
    }
    return {};
  }

 private:
  /// Cut to what a label holds, and fit for a line of text.
  static std::string shown(std::string_view text) {
    if (text.size() > kMaxLength) {
      text = text.substr(0, kMaxLength);
      text = text.substr(0, valid_utf8_prefix(text));
    }
    std::string result = to_valid_utf8(text);
    for (char& c : result) {
      if ((c >= 0 && c < ' ') || c == '\x7f') c = '?';
    }
    return result;
  }

  const EnvironmentLookup& lookup_;
  std::vector<std::string>& notes_;
};

}  // namespace

JobIdentity read_identity(const JobOptions& given, const EnvironmentLookup& lookup,
                          std::vector<std::string>& notes) {
  Reader reader(lookup, notes);
  JobIdentity result;
  result.job_id = given.id;
  if (given.id.empty()) result.job_id = reader.text({"SLURM_JOB_ID", "TORCHELASTIC_RUN_ID"});
  result.rank = given.rank;
  if (!given.rank) result.rank = reader.number({"RANK", "SLURM_PROCID"}, 0, kMaxRank);
  result.local_rank = given.local_rank;
  if (!given.local_rank) {
    result.local_rank = reader.number({"LOCAL_RANK", "SLURM_LOCALID"}, 0, kMaxLocalRank);
  }
  result.world_size = given.world_size;
  if (!given.world_size) {
    result.world_size = reader.number({"WORLD_SIZE", "SLURM_NTASKS"}, 1, kMaxRank);
  }
  result.group_rank = reader.number({"GROUP_RANK", "SLURM_NODEID"}, 0, kMaxRank);
  return result;
}

const JobIdentity& job_identity() {
  // Never destroyed: a scrape may run while the program's static objects are.
  static const JobIdentity* const identity = [] {
    std::vector<std::string> not_told;  // an Exporter reads them, too, and tells
    return new JobIdentity(read_identity(
        {}, [](const char* name) { return std::getenv(name); }, not_told));
  }();
  return *identity;
}

std::string label_text(const std::optional<std::uint32_t>& number) {
  return number ? std::to_string(*number) : std::string();
}

std::string_view library_version() noexcept { return GPUPOOL_VERSION; }

std::string_view cuda_version() noexcept { return GPUPOOL_CUDA_VERSION; }

}  // namespace gpupool::internal
