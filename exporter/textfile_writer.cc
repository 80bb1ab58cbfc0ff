#include "exporter/textfile_writer.h"

#include <chrono>
#include <exception>
#include <utility>

namespace gpupool::internal {
namespace {

/// A write that is late, or one that failed, is no end; four in a row are.
constexpr int kPeriodsValid = 4;

}  // namespace

Result<std::unique_ptr<TextfileWriter>, Status> TextfileWriter::create(
    const ExporterOptions& options, const JobIdentity& identity, Textfile::Collect collect,
    Log log) {
  Textfile textfile(options.textfile, std::move(collect), identity);
  if (auto checked = textfile.check(); !checked.ok()) return checked.error();
  std::unique_ptr<TextfileWriter> writer(new TextfileWriter(std::move(textfile), std::move(log)));
  if (options.textfile_every_ns > 0) {
    const std::chrono::nanoseconds period(options.textfile_every_ns);
    writer->thread_.emplace(std::chrono::ceil<std::chrono::milliseconds>(period),
                            [&writer = *writer, period] { writer.write(kPeriodsValid * period); });
  }
  return writer;
}

TextfileWriter::TextfileWriter(Textfile textfile, Log log)
    : textfile_(std::move(textfile)), log_(std::move(log)) {}

TextfileWriter::~TextfileWriter() {
  thread_.reset();
  write(std::chrono::nanoseconds(0));
}

void TextfileWriter::write(std::chrono::nanoseconds valid_for) noexcept {
  try {
    const auto written = textfile_.write(valid_for);
    if (written.ok() || has_complained_) return;
    has_complained_ = true;
    log_(written.error().message);
  } catch (const std::exception&) {
    // The host has no memory for the page or the line: the next time is soon, or the process ends.
  }
}

}  // namespace gpupool::internal
