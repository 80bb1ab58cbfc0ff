#include "exporter/discovery/target_file.h"

#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <charconv>
#include <filesystem>
#include <optional>
#include <string_view>
#include <system_error>
#include <utility>

#include "exporter/discovery/process_id.h"
#include "exporter/http/json_writer.h"
#include "exporter/http/socket_address.h"

namespace gpupool::internal {
namespace {

namespace fs = std::filesystem;

constexpr std::size_t kMaxFileBytes = std::size_t{64} << 10;
constexpr std::string_view kSuffix = ".json";
constexpr std::string_view kHalfWrittenSuffix = ".json.tmp";
// Prometheus takes labels of this prefix for relabelling and shows them nowhere.
constexpr std::string_view kStartLabel = "__meta_gpupool_process_start";

class File {
 public:
  explicit File(int fd) : fd_(fd) {}
  ~File() {
    if (fd_ >= 0) close(fd_);
  }
  File(const File&) = delete;
  File& operator=(const File&) = delete;
  int fd() const noexcept { return fd_; }

 private:
  const int fd_;
};

/// `text` as part of a file's name, and of nothing else.
std::string safe_name(std::string_view text) {
  constexpr std::size_t kMaxLength = 64;
  std::string result(text.substr(0, kMaxLength));
  for (char& c : result) {
    const bool is_plain = (c >= '0' && c <= '9') || (c >= 'a' && c <= 'z') ||
                          (c >= 'A' && c <= 'Z') || c == '_' || c == '.' || c == '-';
    if (!is_plain) c = '_';
  }
  if (result.starts_with('.')) result.front() = '_';  // neither hidden nor a folder above
  return result;
}

std::string file_stem(const std::string& host, pid_t pid) {
  const std::string space = pid_namespace();
  return safe_name(host) + "-" + std::to_string(pid) + (space.empty() ? "" : "-" + space);
}

/// The process that a file of this host and of these processes is of.
std::optional<pid_t> pid_of(std::string_view stem) {
  const std::string prefix = safe_name(host_name()) + "-";
  const std::string space = pid_namespace();
  if (!stem.starts_with(prefix)) return std::nullopt;
  stem.remove_prefix(prefix.size());
  if (!space.empty()) {
    if (!stem.ends_with("-" + space)) return std::nullopt;
    stem.remove_suffix(space.size() + 1);
  }
  pid_t pid = 0;
  const auto [end, error] = std::from_chars(stem.data(), stem.data() + stem.size(), pid);
  if (error != std::errc() || end != stem.data() + stem.size() || pid <= 0) return std::nullopt;
  return pid;
}

std::string target_text(const Target& target) {
  JsonWriter json;
  json.begin_object();
  json.begin_array("targets");
  json.item(target.endpoint);
  json.end_array();
  json.begin_object("labels");
  const auto label = [&json](std::string_view name, const std::string& value) {
    if (!value.empty()) json.field(name, value);
  };
  label("job_id", target.job.job_id);
  label("rank", label_text(target.job.rank));
  label("local_rank", label_text(target.job.local_rank));
  label("world_size", label_text(target.job.world_size));
  label("group_rank", label_text(target.job.group_rank));
  label("host", target.host);
  label(kStartLabel, process_start(getpid()));
  json.end_object();
  json.end_object();
  return "[" + json.take() + "]\n";
}

/// The value of our own label; the text was written by target_text(), or is of no use.
std::string start_in(std::string_view text) {
  const std::string key = "\"" + std::string(kStartLabel) + "\":\"";
  const std::size_t begin = text.find(key);
  if (begin == std::string_view::npos) return {};
  text.remove_prefix(begin + key.size());
  return std::string(text.substr(0, text.find('"')));
}

Status failure(const std::string& what, int error) {
  return {Error::invalid_argument, what + ": " + errno_text(error)};
}

Result<void, Status> prepare_directory(const std::string& directory) {
  std::error_code error;
  fs::create_directories(directory, error);
  struct stat status {};
  if (stat(directory.c_str(), &status) != 0) {
    return failure(directory + " cannot be made", error ? error.value() : errno);
  }
  if (!S_ISDIR(status.st_mode)) return failure(directory, ENOTDIR);
  if ((status.st_mode & S_IWOTH) != 0 && (status.st_mode & S_ISVTX) == 0) {
    return Status{Error::invalid_argument,
                  directory + " may be written to by everybody, who could put other targets there"};
  }
  return {};
}

Result<void, Status> write_file(const std::string& path, std::string_view text) {
  // What is there is what a process of this number left; a link of somebody's is not followed.
  unlink(path.c_str());
  constexpr mode_t kMode = S_IRUSR | S_IWUSR | S_IRGRP | S_IROTH;
  const File file(open(path.c_str(), O_WRONLY | O_CREAT | O_EXCL | O_NOFOLLOW | O_CLOEXEC, kMode));
  if (file.fd() < 0) return failure(path + " cannot be written", errno);
  while (!text.empty()) {
    const ssize_t written = write(file.fd(), text.data(), text.size());
    if (written < 0 && errno == EINTR) continue;
    if (written < 0) return failure(path + " cannot be written", errno);
    text.remove_prefix(static_cast<std::size_t>(written));
  }
  return {};
}

std::optional<std::string> read_small_file(const std::string& path) {
  const File file(open(path.c_str(), O_RDONLY | O_NOFOLLOW | O_NONBLOCK | O_CLOEXEC));
  struct stat status {};
  if (file.fd() < 0 || fstat(file.fd(), &status) != 0 || !S_ISREG(status.st_mode)) {
    return std::nullopt;
  }
  std::string text(kMaxFileBytes + 1, '\0');
  std::size_t length = 0;
  while (length < text.size()) {
    const ssize_t got = read(file.fd(), text.data() + length, text.size() - length);
    if (got < 0 && errno == EINTR) continue;
    if (got < 0) return std::nullopt;
    if (got == 0) break;
    length += static_cast<std::size_t>(got);
  }
  if (length > kMaxFileBytes) return std::nullopt;
  text.resize(length);
  return text;
}

/// Names in `directory` that end so, in order.
Result<std::vector<std::string>, Status> list(const std::string& directory,
                                              std::string_view suffix) {
  std::error_code error;
  std::vector<std::string> names;
  fs::directory_iterator entry(directory, error);
  for (; !error && entry != fs::directory_iterator(); entry.increment(error)) {
    std::string name = entry->path().filename().string();
    if (name.ends_with(suffix)) names.push_back(std::move(name));
  }
  if (error) return failure(directory + " cannot be read", error.value());
  std::ranges::sort(names);
  return names;
}

/// What processes left that ended between writing and renaming.
void sweep_half_written(const std::string& directory) {
  const auto names = list(directory, kHalfWrittenSuffix);
  if (!names.ok()) return;
  for (const std::string& name : names.value()) {
    std::string_view stem(name);
    stem.remove_suffix(kHalfWrittenSuffix.size());
    if (!stem.starts_with('.')) continue;
    const auto pid = pid_of(stem.substr(1));
    // A process that runs is writing it, or will have it out of its way when it does.
    if (pid && !may_exist(*pid)) unlink((fs::path(directory) / name).c_str());
  }
}

}  // namespace

TargetFile::TargetFile(std::string path) : path_(std::move(path)), owner_(getpid()) {}

TargetFile::~TargetFile() {
  // Where it cannot be removed, whoever sweeps the directory next tries.
  if (getpid() == owner_) unlink(path_.c_str());
}

Result<std::unique_ptr<TargetFile>, Status> TargetFile::publish(const std::string& directory,
                                                                const Target& target) {
  if (auto ready = prepare_directory(directory); !ready.ok()) return ready.error();
  const fs::path folder = fs::absolute(directory);
  const std::string stem = file_stem(host_name(), getpid());
  const std::string half_written = (folder / ("." + stem + std::string(kHalfWrittenSuffix)));
  const std::string path = folder / (stem + std::string(kSuffix));
  auto done = write_file(half_written, target_text(target));
  if (done.ok() && rename(half_written.c_str(), path.c_str()) != 0) {
    done = failure(path + " cannot be written", errno);
  }
  if (!done.ok()) {
    unlink(half_written.c_str());
    return done.error();
  }
  return std::unique_ptr<TargetFile>(new TargetFile(path));
}

Result<std::vector<FoundFile>, Status> find_target_files(const std::string& directory) {
  const auto names = list(directory, kSuffix);
  if (!names.ok()) return names.error();
  std::vector<FoundFile> files;
  for (const std::string& name : names.value()) {
    FoundFile file{.path = fs::path(directory) / name};
    auto text = read_small_file(file.path);
    if (name.starts_with('.') || !text) continue;
    file.text = *std::move(text);
    const auto pid = pid_of(std::string_view(name).substr(0, name.size() - kSuffix.size()));
    const std::string start = start_in(file.text);
    file.is_stale = pid && !start.empty() && !may_run(*pid, start);
    files.push_back(std::move(file));
  }
  return files;
}

bool remove_stale(const FoundFile& file) {
  // A process that has got the same number may have put its own there meanwhile.
  const auto now = read_small_file(file.path);
  return now && *now == file.text && unlink(file.path.c_str()) == 0;
}

std::size_t sweep(const std::string& directory) {
  sweep_half_written(directory);
  const auto files = find_target_files(directory);
  if (!files.ok()) return 0;
  return static_cast<std::size_t>(std::ranges::count_if(
      files.value(), [](const FoundFile& file) { return file.is_stale && remove_stale(file); }));
}

std::string expand_directory(const std::string& pattern, const JobIdentity& job) {
  const std::array<std::pair<std::string_view, std::string>, 2> values = {
      {{"{job_id}", job.job_id.empty() ? "no-job" : safe_name(job.job_id)},
       {"{uid}", std::to_string(getuid())}}};
  std::string result = pattern;
  for (const auto& [name, value] : values) {
    for (std::size_t at = 0; (at = result.find(name, at)) != std::string::npos;) {
      result.replace(at, name.size(), value);
      at += value.size();
    }
  }
  return result;
}

}  // namespace gpupool::internal
