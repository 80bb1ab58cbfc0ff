// Writes an exporter's Textfile: now and then, if that is asked for, and at the end.
//
// On a thread of its own, as the disk may be slow, and a network's never answer. Of writes that
// fail the first is told. Thread safety: made and destroyed by one thread. Cost: a thread, asleep,
// where it writes now and then. A forked child must not destroy one.
#ifndef GPUPOOL_EXPORTER_TEXTFILE_WRITER_H_
#define GPUPOOL_EXPORTER_TEXTFILE_WRITER_H_

#include <chrono>
#include <functional>
#include <memory>
#include <optional>
#include <string>

#include "exporter/http/maintainer.h"
#include "exporter/metrics/identity.h"
#include "exporter/metrics/textfile.h"
#include "gpupool/exporter/config.h"
#include "gpupool/status.h"

namespace gpupool::internal {

class TextfileWriter {
 public:
  using Log = std::function<void(const std::string& line)>;

  /// Errors where nothing can be written to options.textfile.
  static Result<std::unique_ptr<TextfileWriter>, Status> create(const ExporterOptions& options,
                                                                const JobIdentity& identity,
                                                                Textfile::Collect collect, Log log);
  /// Writes it for the last time.
  ~TextfileWriter();
  TextfileWriter(const TextfileWriter&) = delete;
  TextfileWriter& operator=(const TextfileWriter&) = delete;

 private:
  TextfileWriter(Textfile textfile, Log log);
  void write(std::chrono::nanoseconds valid_for) noexcept;

  const Textfile textfile_;
  const Log log_;
  bool has_complained_ = false;  // of whoever writes: the thread, and the destructor after it
  std::optional<Maintainer> thread_;
};

}  // namespace gpupool::internal

#endif  // GPUPOOL_EXPORTER_TEXTFILE_WRITER_H_
