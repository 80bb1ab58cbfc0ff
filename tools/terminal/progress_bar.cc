#include "tools/terminal/progress_bar.h"

#include <algorithm>

namespace gpupool::tools {
namespace {

constexpr std::size_t kBarWidth = 32;
constexpr std::size_t kLabelWidth = 40;
constexpr const char* kWipe = "\r\033[K";

}  // namespace

std::string progress_line(const Terminal& terminal, std::string_view label, std::uint64_t done,
                          std::uint64_t total) {
  const double share =
      total == 0 ? 1.0 : static_cast<double>(std::min(done, total)) / static_cast<double>(total);
  std::string text(label.substr(0, kLabelWidth));
  text.resize(kLabelWidth, ' ');
  const std::string percent = std::to_string(static_cast<int>(share * 100)) + " %";

  const std::size_t other = text.size() + percent.size() + 4;
  const std::size_t room = terminal.columns > other + 1 ? terminal.columns - other - 1 : 0;
  const std::size_t width = std::min(kBarWidth, room);
  if (width < 8) return text.substr(0, terminal.columns > 0 ? terminal.columns - 1 : 0);

  const auto full = static_cast<std::size_t>(share * static_cast<double>(width));
  std::string bar;
  for (std::size_t i = 0; i < width; ++i) {
    bar += terminal.has_utf8 ? (i < full ? "█" : "░") : (i < full ? "#" : ".");
  }
  return text + " " + bar + "  " + percent;
}

ProgressBar::ProgressBar(std::FILE* file, std::uint64_t total)
    : file_(file), terminal_(inspect_terminal(file)), total_(total) {}

ProgressBar::~ProgressBar() { clear(); }

void ProgressBar::update(std::string_view label, std::uint64_t done) {
  if (!terminal_.is_terminal) return;
  std::fputs((kWipe + progress_line(terminal_, label, done, total_)).c_str(), file_);
  std::fflush(file_);
}

void ProgressBar::clear() {
  if (!terminal_.is_terminal) return;
  std::fputs(kWipe, file_);
  std::fflush(file_);
}

}  // namespace gpupool::tools
