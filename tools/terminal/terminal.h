// What may be written to a stream: whether a person sees it, in colour, how wide.
//
// Colour is used on a terminal only, and not with NO_COLOR set or TERM=dumb.
// Thread safety: plain values and functions.
#ifndef GPUPOOL_TOOLS_TERMINAL_TERMINAL_H_
#define GPUPOOL_TOOLS_TERMINAL_TERMINAL_H_

#include <cstddef>
#include <cstdio>
#include <string>
#include <string_view>

namespace gpupool::tools {

enum class Style { plain, bold, dim, red };

struct Terminal {
  bool is_terminal = false;
  bool has_colour = false;
  bool has_utf8 = false;
  std::size_t columns = 120;
  std::size_t lines = 0;  // 0: not known

  /// `text` in `style`, where there is colour.
  std::string styled(std::string_view text, Style style) const;
};

Terminal inspect_terminal(std::FILE* file);

}  // namespace gpupool::tools

#endif  // GPUPOOL_TOOLS_TERMINAL_TERMINAL_H_
