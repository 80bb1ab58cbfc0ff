// exit_probe lazily|eagerly return|exit|exit-elsewhere|exception: uses the library, and ends so.
#include <cstdlib>
#include <stdexcept>
#include <string>
#include <thread>

#include "tests/exit/exit_library.h"

int main(int argument_count, char** arguments) {
  if (argument_count != 3) return 2;
  const std::string how = arguments[2];
  const bool is_eager = std::string(arguments[1]) == "eagerly";
  if (!use_exit_library(is_eager ? ExitSetting::eagerly : ExitSetting::lazily)) return 3;
  if (how == "return") return 42;
  if (how == "exit") std::exit(42);
  if (how == "exit-elsewhere") {
    std::thread([] { std::exit(42); }).join();
  }
  if (how == "exception") throw std::runtime_error("meant");
  return 4;
}
