#include "exporter/metrics/textfile.h"

#include <fcntl.h>
#include <prometheus/text_serializer.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>
#include <cstdio>
#include <exception>
#include <system_error>
#include <utility>

#include "exporter/base/textfile_path.h"
#include "exporter/metrics/metric_table.h"
#include "exporter/metrics/samples.h"

namespace gpupool::internal {
namespace {

constexpr mode_t kMode = S_IRUSR | S_IWUSR | S_IRGRP | S_IROTH;  // node_exporter is another user

std::string replaced(std::string text, std::string_view what, const std::string& by) {
  for (std::size_t at = text.find(what); at != std::string::npos;
       at = text.find(what, at + by.size())) {
    text.replace(at, what.size(), by);
  }
  return text;
}

Status failed(const std::string& path, const std::string& why) {
  return {Error::invalid_argument, "exporter.textfile: " + path + ": " + why};
}

Status failed(const std::string& path, int error) {
  return failed(path, std::generic_category().message(error));
}

/// A new file, never one that somebody else has put or linked there; -1 where there can be none.
int create_file(const std::string& path) {
  unlink(path.c_str());  // of a process that had this number and was killed
  return open(path.c_str(), O_WRONLY | O_CREAT | O_EXCL | O_NOFOLLOW | O_CLOEXEC, kMode);
}

double unix_seconds_in(std::chrono::nanoseconds time) {
  const auto since_epoch = std::chrono::system_clock::now().time_since_epoch();
  return std::chrono::duration<double>(since_epoch + time).count();
}

void add_label(std::vector<prometheus::MetricFamily>& families, const char* name,
               const std::string& value) {
  if (value.empty()) return;
  for (prometheus::MetricFamily& family : families) {
    for (prometheus::ClientMetric& metric : family.metric) {
      bool has_it = false;
      for (const auto& label : metric.label) has_it = has_it || label.name == name;
      if (!has_it) metric.label.push_back({name, value});
    }
  }
}

/// 0, or the reason why not all of it was written and safe on the disk.
int write_all(int file, std::string_view text) {
  while (!text.empty()) {
    const ssize_t written = ::write(file, text.data(), text.size());
    if (written < 0 && errno == EINTR) continue;
    if (written < 0) return errno;
    text.remove_prefix(static_cast<std::size_t>(written));
  }
  // Or a crash of the machine could leave the new name with nothing in it.
  return fsync(file) == 0 ? 0 : errno;
}

}  // namespace

Textfile::Textfile(std::string_view path, Collect collect, const JobIdentity& identity)
    : path_(path), collect_(std::move(collect)), identity_(identity) {
  path_ = replaced(path_, "{rank}", std::to_string(identity.rank.value_or(0)));
  path_ = replaced(path_, "{local_rank}", std::to_string(identity.local_rank.value_or(0)));
  path_ = replaced(path_, "{pid}", std::to_string(getpid()));
}

Result<void, Status> Textfile::check() const {
  if (const char* problem = textfile_path_problem(path_)) return failed(path_, problem);
  const std::string beside = path_ + "." + std::to_string(getpid()) + ".tmp";
  const int file = create_file(beside);
  if (file < 0) return failed(path_, errno);
  close(file);
  unlink(beside.c_str());
  struct stat there {};
  if (lstat(path_.c_str(), &there) != 0) return {};
  if (S_ISLNK(there.st_mode)) return failed(path_, "is a symbolic link: name the file itself");
  if (!S_ISREG(there.st_mode)) return failed(path_, EEXIST);
  return {};
}

Result<void, Status> Textfile::write(std::chrono::nanoseconds valid_for) const {
  // The collector reads names that end in .prom, which this one never does.
  const std::string beside = path_ + "." + std::to_string(getpid()) + ".tmp";
  auto written = write_beside(beside, valid_for);
  if (!written.ok()) {
    unlink(beside.c_str());
    return written;
  }
  if (rename(beside.c_str(), path_.c_str()) != 0) {
    const int error = errno;
    unlink(beside.c_str());
    return failed(path_, error);
  }
  return {};
}

Result<void, Status> Textfile::write_beside(const std::string& beside,
                                            std::chrono::nanoseconds valid_for) const {
  std::string text;
  try {
    auto families = collect_();
    families.push_back(make_family(metric_row(kTextfileEnd), unix_seconds_in(valid_for)));
    add_label(families, "rank", label_text(identity_.rank));
    add_label(families, "job_id", identity_.job_id);
    text = prometheus::TextSerializer().Serialize(families);
  } catch (const std::exception& error) {
    return Status{Error::out_of_memory, "exporter.textfile: " + path_ + ": " + error.what()};
  }
  const int file = create_file(beside);
  if (file < 0) return failed(path_, errno);
  const int error = write_all(file, text);
  close(file);
  if (error != 0) return failed(path_, error);
  return {};
}

}  // namespace gpupool::internal
