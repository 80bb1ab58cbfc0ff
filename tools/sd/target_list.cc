#include "tools/sd/target_list.h"

#include <algorithm>
#include <filesystem>
#include <nlohmann/json.hpp>
#include <system_error>
#include <utility>
#include <vector>

namespace gpupool::tools {
namespace {

using nlohmann::json;

// More than any cluster has; a directory of something else must not fill the memory.
constexpr std::size_t kMaxFiles = 100'000;

bool is_text(const json& value) { return value.is_string(); }

/// One group: its targets, and labels where there are any.
bool is_target_group(const json& group) {
  if (!group.is_object() || !group.contains("targets")) return false;
  const json& targets = group["targets"];
  if (!targets.is_array() || !std::all_of(targets.begin(), targets.end(), is_text)) return false;
  if (!group.contains("labels")) return true;
  const json& labels = group["labels"];
  return labels.is_object() && std::all_of(labels.begin(), labels.end(), is_text);
}

/// The directory, and those in it, in order.
std::vector<std::string> folders_of(const std::string& directory) {
  std::vector<std::string> folders;
  std::error_code error;
  std::filesystem::directory_iterator entry(directory, error);
  for (; !error && entry != std::filesystem::directory_iterator(); entry.increment(error)) {
    std::error_code ignored;  // what is no directory, or just went, has no targets
    if (entry->is_directory(ignored)) folders.push_back(entry->path().string());
  }
  std::ranges::sort(folders);
  folders.insert(folders.begin(), directory);
  return folders;
}

}  // namespace

TargetList::TargetList(std::string directory, std::chrono::nanoseconds keep,
                       std::function<void(const std::string&)> complain)
    : directory_(std::move(directory)), keep_(keep), complain_(std::move(complain)) {}

bool TargetList::is_to_go(const internal::FoundFile& file, Time now) {
  if (!file.is_stale) {
    stale_since_.erase(file.path);
    return false;
  }
  const Time since = stale_since_.emplace(file.path, now).first->second;
  if (now - since < keep_) return false;
  stale_since_.erase(file.path);
  return remove_stale(file);
}

Result<std::string, Status> TargetList::read(Time now) {
  const std::lock_guard lock(mutex_);
  json groups = json::array();
  std::size_t count = 0;
  for (const std::string& folder : folders_of(directory_)) {
    const auto files = internal::find_target_files(folder);
    if (!files.ok()) {
      if (folder == directory_) return files.error();
      if (complained_.insert(folder).second) complain_(files.error().message);
      continue;
    }
    for (const internal::FoundFile& file : files.value()) {
      if (++count > kMaxFiles) break;
      if (is_to_go(file, now)) continue;
      json found = json::parse(file.text, nullptr, false);
      if (!found.is_array() || !std::all_of(found.begin(), found.end(), is_target_group)) {
        if (complained_.insert(file.path).second) {
          complain_(file.path + ": no list of targets, left out");
        }
        continue;
      }
      for (json& group : found) groups.push_back(std::move(group));
    }
  }
  return groups.dump(-1, ' ', false, json::error_handler_t::replace) + "\n";
}

}  // namespace gpupool::tools
