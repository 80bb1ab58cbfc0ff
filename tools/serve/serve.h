// Serves something recorded on this machine alone, until the program is told to stop.
//
// Thread safety: one thread, which gets SIGINT and SIGTERM. Cost: exporter/http/http_server.h.
#ifndef GPUPOOL_TOOLS_SERVE_SERVE_H_
#define GPUPOOL_TOOLS_SERVE_SERVE_H_

#include <optional>
#include <string>

#include "exporter/http/http_server.h"
#include "tools/exit_code.h"
#include "tools/replay/replay.h"
#include "tools/serve/recorded_endpoints.h"
#include "tools/trace/trace.h"

namespace gpupool::tools {

/// "127.0.0.1:80", "[::1]:80"; nothing for anything else.
std::optional<internal::ListenOptions> parse_endpoint(const std::string& text);

/// `gpupool replay --serve`: plays the trace on the simulated device and serves the page on it.
ExitCode serve_replay(Trace trace, const ReplayOptions& options, const std::string& bind);

/// Prints "page: URL" and then `more`, and serves until it is told to stop. `bind` is --bind as it
/// was given. Requires: no other thread was started.
ExitCode serve_recorded(RecordedSources sources, const std::string& bind, const std::string& more);

}  // namespace gpupool::tools

#endif  // GPUPOOL_TOOLS_SERVE_SERVE_H_
