// A training service that takes its GPU memory from gpupool and can be watched while it runs:
// weights that live for ever, activations and gradients that come and go with each step, metrics
// on a port.
//
//   training_service CONFIG.yaml [--for SECONDS]
//
// It opens the first CUDA device; where there is none it says so and uses the simulated one. Ends
// on SIGINT and SIGTERM. Exit codes: 0 finished, 1 the training failed, 2 usage or configuration.
#include <gpupool/cuda_backend.h>
#include <gpupool/exporter/config.h>
#include <gpupool/exporter/exporter.h>
#include <gpupool/pool.h>
#include <gpupool/simulated_backend.h>

#include <chrono>
#include <csignal>
#include <cstdint>
#include <cstdlib>
#include <iostream>
#include <memory>
#include <string>
#include <thread>
#include <utility>
#include <vector>

namespace {

constexpr int kLayers = 12;

volatile std::sig_atomic_t stop_asked = 0;
void ask_to_stop(int /*signal*/) { stop_asked = 1; }

struct Arguments {
  std::string config_file;
  double seconds = 0;  // 0: until a signal
};

bool parse(int argc, char** argv, Arguments& arguments) {
  for (int i = 1; i < argc; ++i) {
    const std::string word = argv[i];
    if (word == "--for" && i + 1 < argc) {
      char* end = nullptr;
      arguments.seconds = std::strtod(argv[++i], &end);
      if (*end != '\0' || !(arguments.seconds > 0)) return false;
    } else if (arguments.config_file.empty() && word.rfind('-', 0) != 0) {
      arguments.config_file = word;
    } else {
      return false;
    }
  }
  return !arguments.config_file.empty();
}

int complain(const std::string& text, int exit_code) {
  std::cerr << "training_service: " << text << '\n';
  return exit_code;
}

int complain(const std::vector<gpupool::ConfigError>& errors, const std::string& file) {
  for (const auto& error : errors) std::cerr << error.text(file) << '\n';
  return 2;
}

std::unique_ptr<gpupool::Backend> simulated_device(const std::string& why) {
  std::cerr << "training_service: no CUDA device, using the simulated one (" << why << ")\n";
  gpupool::SimulatedDeviceOptions options;
  options.time = gpupool::SimulatedTime::real_time;
  return std::make_unique<gpupool::SimulatedBackend>(options);
}

/// Takes `count` blocks of `bytes` for the purpose `tag`; false where one was not served.
bool take(gpupool::Pool& pool, gpupool::StreamRef stream, const char* tag, int count,
          std::size_t bytes, std::vector<void*>& blocks) {
  const auto purpose = pool.find_tag(tag);
  // A configuration without that name is no reason to fail: the bytes count as untagged.
  gpupool::TagScope scope(purpose.ok() ? purpose.value() : gpupool::kUntagged);
  for (int i = 0; i < count; ++i) {
    const auto block = pool.allocate(bytes, stream);
    if (!block.ok()) {
      complain(pool.last_failure().text(), 1);
      return false;
    }
    blocks.push_back(block.value());
  }
  return true;
}

void give_back(gpupool::Pool& pool, gpupool::StreamRef stream, std::vector<void*>& blocks) {
  while (!blocks.empty()) {
    pool.deallocate(blocks.back(), stream);
    blocks.pop_back();
  }
}

/// Steps until the time is over or a signal came. Activations of every layer are taken on the way
/// forward, gradients on the way back; sequences differ in length, and the blocks with them.
bool train(gpupool::Pool& pool, gpupool::StreamRef stream, const Arguments& arguments) {
  const auto start = std::chrono::steady_clock::now();
  const std::chrono::duration<double> limit(arguments.seconds);
  std::vector<void*> weights;
  bool served = take(pool, stream, "weights", kLayers, 28'000'000, weights);
  std::uint64_t step = 0;
  while (served && stop_asked == 0 &&
         (arguments.seconds == 0 || std::chrono::steady_clock::now() - start < limit)) {
    std::vector<void*> blocks;
    const std::size_t length = 64 + (step * 37) % 448;
    served = take(pool, stream, "activations", kLayers, length * 48 * 1024, blocks) &&
             take(pool, stream, "gradients", kLayers, 7'000'000, blocks);
    give_back(pool, stream, blocks);
    std::this_thread::sleep_for(std::chrono::milliseconds(20));  // in place of the computation
    ++step;
  }
  give_back(pool, stream, weights);
  const gpupool::StatsV1 stats = pool.stats();
  std::cout << step << " steps, " << stats.requests << " requests, " << stats.hits << " hits, "
            << stats.peak_held_bytes << " bytes held at most\n";
  return served;
}

}  // namespace

int main(int argc, char** argv) {
  Arguments arguments;
  if (!parse(argc, argv, arguments)) {
    return complain("usage: training_service CONFIG.yaml [--for SECONDS]", 2);
  }
  std::signal(SIGINT, ask_to_stop);
  std::signal(SIGTERM, ask_to_stop);

  // README begins
  auto config = gpupool::load_config_file(arguments.config_file);
  if (!config.ok()) return complain(config.error(), arguments.config_file);
  auto device = gpupool::open_cuda_backend(0);
  if (!device.ok()) device = simulated_device(device.error().message);
  auto pool = gpupool::Pool::create(*device.value(), config.value().pool);
  if (!pool.ok()) return complain(pool.error().message, 2);
  auto exporter = gpupool::Exporter::start(*pool.value(), config.value().exporter);
  if (!exporter.ok()) complain("goes on without metrics: " + exporter.error().message, 0);

  auto stream = pool.value()->adopt_stream(nullptr);  // or any cudaStream_t
  if (!stream.ok()) return complain("the default stream cannot be used", 1);
  auto block = pool.value()->allocate(64'000'000, stream.value());
  if (!block.ok()) return complain(pool.value()->last_failure().text(), 1);
  // ... kernels of that stream use block.value() ...
  pool.value()->deallocate(block.value(), stream.value());
  // README ends

  if (exporter.ok()) std::cout << "metrics: " << exporter.value()->url() << "metrics" << std::endl;
  return train(*pool.value(), stream.value(), arguments) ? 0 : 1;
}
