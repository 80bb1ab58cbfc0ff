// The contract on the simulated device, with and without bytes, and through the decorator; and
// what can be said of open_cuda_backend on any machine.
#include <cstring>

#include "gpupool/cuda_backend.h"
#include "gpupool/faulty_backend.h"
#include "gpupool/simulated_backend.h"
#include "tests/contract/backend_contract.h"

namespace gpupool::contract {
namespace {

SimulatedDeviceOptions options_of(SimulatedMemory memory) {
  SimulatedDeviceOptions options;
  options.memory = memory;
  if (memory == SimulatedMemory::real) {
    options.capacity_bytes = std::uint64_t{1} << 30;
    options.granularity_bytes = 64 << 10;
  }
  return options;
}

class SimulatedContractDevice : public ContractDevice {
 public:
  explicit SimulatedContractDevice(SimulatedMemory memory) : simulated_(options_of(memory)) {}
  // Nothing in the suites is what would corrupt memory on a card.
  ~SimulatedContractDevice() override {
    EXPECT_EQ(simulated_.violation_count(), 0u) << simulated_.last_violation();
    EXPECT_EQ(simulated_.object_count(), 0u);
  }

  Backend& backend() override { return simulated_; }
  RawStream create_stream() override { return simulated_.create_stream(); }
  RawStream create_blocking_stream() override { return simulated_.create_stream(); }
  void destroy_stream(RawStream stream) override { simulated_.destroy_stream(stream); }
  void start_work(RawStream stream) override {
    EXPECT_TRUE(simulated_.launch(stream, {.until_completed = true}));
  }
  void finish_work(RawStream stream) override { EXPECT_TRUE(simulated_.complete_next(stream)); }
  void begin_capture(RawStream stream) override { simulated_.begin_capture(stream); }
  void end_capture(RawStream stream) override { simulated_.end_capture(stream); }
  void fill(RawStream stream, DeviceAddress address, std::uint8_t value,
            std::uint64_t bytes) override {
    const auto body = [=] { std::memset(reinterpret_cast<void*>(address), value, bytes); };
    EXPECT_TRUE(simulated_.launch(stream, {.address = address, .bytes = bytes, .body = body}));
    EXPECT_TRUE(simulated_.is_idle(stream));
  }
  std::vector<std::uint8_t> read(DeviceAddress address, std::uint64_t bytes) override {
    std::vector<std::uint8_t> data(bytes);
    std::memcpy(data.data(), reinterpret_cast<const void*>(address), bytes);
    return data;
  }

 private:
  SimulatedBackend simulated_;
};

class FaultyContractDevice final : public SimulatedContractDevice {
 public:
  using SimulatedContractDevice::SimulatedContractDevice;
  ~FaultyContractDevice() override {
    EXPECT_EQ(faulty_.failed_count(), 0u);
    EXPECT_GT(faulty_.call_count(), 0u);
  }
  Backend& backend() override { return faulty_; }

 private:
  FaultyBackend faulty_{SimulatedContractDevice::backend()};
};

template <class Device, SimulatedMemory kMemory>
std::unique_ptr<ContractDevice> open() {
  return std::make_unique<Device>(kMemory);
}

const ContractCase kAddressOnly{"SimulatedAddressOnly",
                                open<SimulatedContractDevice, SimulatedMemory::address_only>};
const ContractCase kReal{"SimulatedReal", open<SimulatedContractDevice, SimulatedMemory::real>};
const ContractCase kFaulty{"FaultyPassThrough", open<FaultyContractDevice, SimulatedMemory::real>};

INSTANTIATE_TEST_SUITE_P(Simulated, BackendContract, testing::Values(kAddressOnly, kReal, kFaulty),
                         name_of_case);
INSTANTIATE_TEST_SUITE_P(Simulated, BackendDataContract, testing::Values(kReal, kFaulty),
                         name_of_case);

// True on every machine: with a card, without one, and in builds without CUDA.
TEST(OpenCudaBackend, SaysWhyThereIsNoSuchDevice) {
  for (const int ordinal : {-1, 100000}) {
    const auto opened = open_cuda_backend(ordinal);
    ASSERT_FALSE(opened);
    EXPECT_EQ(opened.error().code, Error::not_supported);
    EXPECT_NE(opened.error().message.find("CUDA"), std::string::npos) << opened.error().message;
  }
}

}  // namespace
}  // namespace gpupool::contract
