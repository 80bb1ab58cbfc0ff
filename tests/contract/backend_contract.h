// What every Backend must do, whatever is behind it. A program that has a device to test derives
// from ContractDevice, and instantiates the two suites with a function that opens it:
//
//   BackendContract      rules of memory, events, streams and captures;
//   BackendDataContract  bytes: only for devices that have any.
#ifndef GPUPOOL_TESTS_CONTRACT_BACKEND_CONTRACT_H_
#define GPUPOOL_TESTS_CONTRACT_BACKEND_CONTRACT_H_

#include <gtest/gtest.h>

#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "gpupool/backend.h"

namespace gpupool::contract {

/// A backend, and the other side of its device: what a program would do with streams and memory.
/// All methods but `backend` end the test where the device refuses. Used from several threads.
class ContractDevice {
 public:
  virtual ~ContractDevice() = default;
  virtual Backend& backend() = 0;

  /// A stream that the legacy stream does not synchronise with.
  virtual RawStream create_stream() = 0;
  /// One that it does.
  virtual RawStream create_blocking_stream() = 0;
  virtual void destroy_stream(RawStream stream) = 0;
  /// Gives `stream` work that runs until finish_work. One piece at a time on one device.
  virtual void start_work(RawStream stream) = 0;
  virtual void finish_work(RawStream stream) = 0;
  virtual void begin_capture(RawStream stream) = 0;
  virtual void end_capture(RawStream stream) = 0;

  /// Sets bytes on `stream`, and waits for it.
  virtual void fill(RawStream stream, DeviceAddress address, std::uint8_t value,
                    std::uint64_t bytes) = 0;
  virtual std::vector<std::uint8_t> read(DeviceAddress address, std::uint64_t bytes) = 0;
};

/// How a device is opened, with a name for the test's.
struct ContractCase {
  std::string name;
  std::unique_ptr<ContractDevice> (*open)() = nullptr;
};

inline std::string name_of_case(const testing::TestParamInfo<ContractCase>& info) {
  return info.param.name;
}

class ContractTest : public testing::TestWithParam<ContractCase> {
 protected:
  void SetUp() override {
    device_ = GetParam().open();
    ASSERT_NE(device_, nullptr);
    backend_ = &device_->backend();
    page_ = backend_->granularity_bytes();
    ASSERT_EQ(backend_->held_bytes(), 0u);
  }
  // Every test gives back what it took.
  void TearDown() override {
    if (backend_ != nullptr) {
      EXPECT_EQ(backend_->held_bytes(), 0u);
    }
  }

  DeviceAddress reserve(std::uint64_t pages) {
    return backend_->reserve_address(pages * page_, page_).value();
  }
  /// `pages` pages of one handle, mapped and accessible at `address`; the mapping alone keeps it.
  void map_new(DeviceAddress address, std::uint64_t pages) {
    const PhysicalHandle handle = backend_->create(pages * page_).value();
    EXPECT_TRUE(backend_->map(address, pages * page_, handle));
    EXPECT_TRUE(backend_->set_access(address, pages * page_));
    EXPECT_TRUE(backend_->release(handle));
  }

  std::unique_ptr<ContractDevice> device_;
  Backend* backend_ = nullptr;
  std::size_t page_ = 0;
};

class BackendContract : public ContractTest {};
class BackendDataContract : public ContractTest {};

}  // namespace gpupool::contract

#endif  // GPUPOOL_TESTS_CONTRACT_BACKEND_CONTRACT_H_
