// The contract on a CUDA device, and what a host program must not notice of us. Needs a card;
// work that takes as long as a test wants is a host function that waits, so no kernel is needed.
#include <cuda_runtime_api.h>
#include <sys/wait.h>
#include <unistd.h>

#include <chrono>
#include <condition_variable>
#include <cstdlib>
#include <mutex>
#include <thread>
#include <utility>

#include "gpupool/cuda_backend.h"
#include "tests/contract/backend_contract.h"

namespace gpupool::contract {
namespace {

constexpr int kOrdinal = 0;

/// Ends the program where the runtime refuses: nothing after it would mean anything.
void require(cudaError_t error, const char* what) {
  if (error == cudaSuccess) return;
  ADD_FAILURE() << what << ": " << cudaGetErrorString(error);
  std::abort();
}

/// What one piece of work waits for.
class Gate {
 public:
  void open() {
    const std::lock_guard<std::mutex> lock(mutex_);
    is_open_ = true;
    changed_.notify_all();
  }
  void close() {
    const std::lock_guard<std::mutex> lock(mutex_);
    is_open_ = false;
  }
  // Bounded, so that a test that fails half way does not leave the card waiting for ever.
  void pass() {
    std::unique_lock<std::mutex> lock(mutex_);
    changed_.wait_for(lock, std::chrono::seconds(20), [this] { return is_open_; });
  }

 private:
  std::mutex mutex_;
  std::condition_variable changed_;
  bool is_open_ = true;
};

class CudaContractDevice final : public ContractDevice {
 public:
  explicit CudaContractDevice(std::unique_ptr<Backend> backend) : backend_(std::move(backend)) {
    require(cudaSetDevice(kOrdinal), "cudaSetDevice");
  }
  ~CudaContractDevice() override {
    gate_.open();
    EXPECT_EQ(cudaDeviceSynchronize(), cudaSuccess);
    EXPECT_EQ(cudaGetLastError(), cudaSuccess);
  }

  Backend& backend() override { return *backend_; }
  RawStream create_stream() override { return create(cudaStreamNonBlocking); }
  RawStream create_blocking_stream() override { return create(cudaStreamDefault); }
  void destroy_stream(RawStream stream) override {
    require(cudaStreamDestroy(stream), "cudaStreamDestroy");
  }
  void start_work(RawStream stream) override {
    gate_.close();
    const auto wait = [](void* gate) { static_cast<Gate*>(gate)->pass(); };
    require(cudaLaunchHostFunc(stream, wait, &gate_), "cudaLaunchHostFunc");
  }
  void finish_work(RawStream stream) override {
    gate_.open();
    require(cudaStreamSynchronize(stream), "cudaStreamSynchronize");
  }
  // In the strictest mode: an unsafe call of any thread would invalidate the capture.
  void begin_capture(RawStream stream) override {
    require(cudaStreamBeginCapture(stream, cudaStreamCaptureModeGlobal), "cudaStreamBeginCapture");
  }
  void end_capture(RawStream stream) override {
    cudaGraph_t graph = nullptr;
    require(cudaStreamEndCapture(stream, &graph), "cudaStreamEndCapture");
    require(cudaGraphDestroy(graph), "cudaGraphDestroy");
  }
  void fill(RawStream stream, DeviceAddress address, std::uint8_t value,
            std::uint64_t bytes) override {
    require(cudaMemsetAsync(reinterpret_cast<void*>(address), value, bytes, stream),
            "cudaMemsetAsync");
    require(cudaStreamSynchronize(stream), "cudaStreamSynchronize");
  }
  std::vector<std::uint8_t> read(DeviceAddress address, std::uint64_t bytes) override {
    std::vector<std::uint8_t> data(bytes);
    require(cudaMemcpy(data.data(), reinterpret_cast<const void*>(address), bytes,
                       cudaMemcpyDeviceToHost),
            "cudaMemcpy");
    return data;
  }

 private:
  static RawStream create(unsigned flags) {
    cudaStream_t stream = nullptr;
    require(cudaStreamCreateWithFlags(&stream, flags), "cudaStreamCreateWithFlags");
    return stream;
  }

  Gate gate_;
  std::unique_ptr<Backend> backend_;
};

std::unique_ptr<Backend> open_backend() {
  auto opened = open_cuda_backend(kOrdinal);
  if (opened) return std::move(opened).value();
  ADD_FAILURE() << opened.error().message;
  return nullptr;
}

std::unique_ptr<ContractDevice> open() {
  auto backend = open_backend();
  if (backend == nullptr) return nullptr;
  return std::make_unique<CudaContractDevice>(std::move(backend));
}

const ContractCase kCuda{"Cuda", open};

INSTANTIATE_TEST_SUITE_P(Gpu, BackendContract, testing::Values(kCuda), name_of_case);
INSTANTIATE_TEST_SUITE_P(Gpu, BackendDataContract, testing::Values(kCuda), name_of_case);

TEST(CudaBackend, DescribesTheDeviceAsTheRuntimeDoes) {
  const auto backend = open_backend();
  ASSERT_NE(backend, nullptr);
  cudaDeviceProp properties = {};
  require(cudaGetDeviceProperties(&properties, kOrdinal), "cudaGetDeviceProperties");
  const DeviceInfo& info = backend->info();
  EXPECT_EQ(info.name, properties.name);
  EXPECT_FALSE(info.simulated);
  EXPECT_EQ(info.ordinal, kOrdinal);
  EXPECT_NE(info.pci_bus_id.find(':'), std::string::npos);
  const std::uint64_t total_bytes = backend->memory_info().value().total_bytes;
  EXPECT_LE(total_bytes, properties.totalGlobalMem);
  EXPECT_GT(total_bytes, properties.totalGlobalMem / 10 * 9);
}

// A fresh thread has no context: it must have none after our calls either, nor an error.
TEST(CudaBackend, LeavesTheCallersThreadAsItWas) {
  const auto backend = open_backend();
  ASSERT_NE(backend, nullptr);
  std::thread([&] {
    (void)cudaGetLastError();
    int before = -1;
    require(cudaGetDevice(&before), "cudaGetDevice");
    const auto handle = backend->create(backend->granularity_bytes());
    EXPECT_TRUE(handle);
    EXPECT_FALSE(backend->create(std::size_t{1} << 46));  // 64 TiB: the driver refuses
    EXPECT_FALSE(backend->allocate(std::size_t{1} << 46));
    EXPECT_EQ(cudaPeekAtLastError(), cudaSuccess);
    if (handle) {
      EXPECT_TRUE(backend->release(handle.value()));
    }
    int after = -1;
    require(cudaGetDevice(&after), "cudaGetDevice");
    EXPECT_EQ(after, before);
    cudaStreamCaptureMode mode = cudaStreamCaptureModeGlobal;
    require(cudaThreadExchangeStreamCaptureMode(&mode), "cudaThreadExchangeStreamCaptureMode");
    EXPECT_EQ(mode, cudaStreamCaptureModeGlobal);
  }).join();
  // An error that was the host program's own is still there after our calls.
  EXPECT_NE(cudaSetDevice(100000), cudaSuccess);
  EXPECT_TRUE(backend->memory_info());
  EXPECT_FALSE(open_cuda_backend(100000));
  EXPECT_NE(cudaGetLastError(), cudaSuccess);
}

TEST(CudaBackend, OpensTwiceAndClosesOnce) {
  auto first = open_backend();
  const auto second = open_backend();
  ASSERT_TRUE(first && second);
  first.reset();
  EXPECT_TRUE(second->memory_info());
  const auto plain = second->allocate(4096);
  ASSERT_TRUE(plain);
  EXPECT_TRUE(second->deallocate(plain.value()));
}

// cuMemUnmap does not wait: the caller's events are what protects running work.
TEST(CudaBackend, UnmapDoesNotWaitForOtherWork) {
  auto opened = open_backend();
  ASSERT_NE(opened, nullptr);
  CudaContractDevice device(std::move(opened));
  Backend& backend = device.backend();
  const std::size_t page = backend.granularity_bytes();
  const DeviceAddress range = backend.reserve_address(page, page).value();
  const PhysicalHandle handle = backend.create(page).value();
  ASSERT_TRUE(backend.map(range, page, handle));
  ASSERT_TRUE(backend.set_access(range, page));
  const RawStream stream = device.create_stream();
  const EventHandle event = backend.create_event().value();
  device.start_work(stream);
  ASSERT_TRUE(backend.record_event(event, stream));
  EXPECT_TRUE(backend.unmap(range, page));
  EXPECT_FALSE(backend.query_event(event).value());
  device.finish_work(stream);
  EXPECT_TRUE(backend.destroy_event(event));
  EXPECT_TRUE(backend.release(handle));
  EXPECT_TRUE(backend.free_address(range, page));
  device.destroy_stream(stream);
  EXPECT_EQ(backend.held_bytes(), 0u);
}

// The child answers by its exit code, and leaves by _exit: nothing of the parent's is taken down.
TEST(CudaBackend, AForkedChildGetsAnError) {
  const auto backend = open_backend();
  ASSERT_NE(backend, nullptr);
  const pid_t child = fork();
  ASSERT_GE(child, 0);
  if (child == 0) {
    const bool is_refused = !backend->memory_info() && !backend->create(2 << 20) &&
                            !backend->stream_id(nullptr) && !open_cuda_backend(kOrdinal);
    _exit(is_refused ? 0 : 1);
  }
  int status = -1;
  ASSERT_EQ(waitpid(child, &status, 0), child);
  EXPECT_TRUE(WIFEXITED(status));
  EXPECT_EQ(WEXITSTATUS(status), 0);
  EXPECT_TRUE(backend->memory_info());  // the parent goes on
}

}  // namespace
}  // namespace gpupool::contract
