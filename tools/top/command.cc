#include "tools/top/command.h"

#include <CLI/CLI.hpp>
#include <chrono>
#include <cstdio>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "tools/terminal/stop_signal.h"
#include "tools/terminal/terminal.h"
#include "tools/top/fleet.h"
#include "tools/top/view.h"

namespace gpupool::tools {
namespace {

struct TopCommand {
  std::vector<std::string> urls;
  std::uint64_t interval_s = 2;
  bool is_once = false;
};

/// A screen of its own while it lives: what was there before is there again afterwards.
class Screen {
 public:
  Screen() { write("\033[?1049h\033[?25l"); }
  ~Screen() { write("\033[?25h\033[?1049l"); }
  Screen(const Screen&) = delete;
  Screen& operator=(const Screen&) = delete;

  /// Line by line over what was there: nothing flickers.
  void show(const std::string& text) {
    std::string out = "\033[H";
    for (const char c : text) out += c == '\n' ? std::string("\033[K\n") : std::string(1, c);
    write(out + "\033[J");
  }

 private:
  static void write(const std::string& text) {
    std::fputs(text.c_str(), stdout);
    std::fflush(stdout);
  }
};

ExitCode watch(Fleet& fleet, const TopCommand& command) {
  // Before any thread is started, as libcurl may: the signals are ours.
  StopSignal stop;
  const std::chrono::seconds interval(command.interval_s);
  Screen screen;
  while (!stop.is_set()) {
    const auto begin = std::chrono::steady_clock::now();
    const std::vector<Rank> ranks = fleet.look();
    const Terminal terminal = inspect_terminal(stdout);  // which may have another size by now
    screen.show(top_text(ranks, terminal, terminal.lines) +
                terminal.styled("each " + std::to_string(command.interval_s) +
                                    " s; who fails first stands first; Ctrl-C ends",
                                Style::dim));
    if (stop.wait_until(begin + interval)) break;
  }
  return ExitCode::finished;
}

ExitCode run_top(const TopCommand& command) {
  std::vector<Address> addresses;
  for (const std::string& url : command.urls) {
    auto parsed = parse_addresses(url);
    if (!parsed.ok()) {
      print_error(parsed.error());
      return ExitCode::usage;
    }
    for (Address& address : parsed.value()) addresses.push_back(std::move(address));
  }
  Fleet fleet(std::move(addresses));
  const Terminal terminal = inspect_terminal(stdout);
  if (command.is_once || !terminal.is_terminal) {
    return print_result(top_text(fleet.look(), terminal, 0));
  }
  return watch(fleet, command);
}

}  // namespace

void add_top_command(CLI::App& app, Action& action) {
  CLI::App& top = *app.add_subcommand(
      "top", "Show the pools of several processes, refreshed, who fails first on top");
  const auto command = std::make_shared<TopCommand>();
  top.add_option(
         "URL", command->urls,
         "Where exporters answer: node7, node7:10064, node7:10064-10071, http://[::1]:10064;"
         " beyond loopback they need exporter.public_page: true")
      ->required();
  add_number(top, "--interval", command->interval_s, 1, 3600,
             "Seconds from look to look (default 2)");
  top.add_flag("--once", command->is_once,
               "Print one table and end, as where the output is no terminal");
  top.callback([command, &action] { action = [command] { return run_top(*command); }; });
}

}  // namespace gpupool::tools
