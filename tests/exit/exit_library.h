// A library that keeps a pool in static objects, as a plug-in does.
#ifndef GPUPOOL_TESTS_EXIT_EXIT_LIBRARY_H_
#define GPUPOOL_TESTS_EXIT_EXIT_LIBRARY_H_

/// How the library makes its pool.
enum class ExitSetting {
  lazily,   // a static object of a function, at first use
  eagerly,  // with the stream and the first block already while the static object is made
};

/// Starts pool and exporter, with their threads on, and uses the pool for a while. False where
/// something does not work.
bool use_exit_library(ExitSetting setting);

#endif  // GPUPOOL_TESTS_EXIT_EXIT_LIBRARY_H_
