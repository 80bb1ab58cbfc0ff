// B11: memory that is passed to another process or to a network adapter. "Invalid argument" from
// the driver, late, for memory of a pool, is what people met; here each backing says early whether
// and how, and one that can be exported is there in all of them.
#include <string>

#include "tests/cases/case_pool.h"
#include "tests/support/units.h"

namespace gpupool::test {
namespace {

constexpr std::uint64_t kBytes = 8 * kMiB;

PoolOptions with(Backing backing, ContiguousBacking contiguous) {
  PoolOptions options;
  options.backing = backing;
  options.contiguous = contiguous;
  return options;
}

void* contiguous(CasePool& the) {
  AllocationRequest request;
  request.bytes = kBytes;
  request.allocation_class = AllocationClass::contiguous;
  return the.pool().allocate(request, the.stream()).value();
}

/// What is right for a block and for an address 2 MiB into it: the driver takes both, and the
/// other side finds the bytes at the offset that the pool names.
void expect_legacy_export(CasePool& the, void* block) {
  for (const std::uint64_t offset : {std::uint64_t{0}, 2 * kMiB}) {
    const auto address = reinterpret_cast<DeviceAddress>(block) + offset;
    const auto base = the.device().export_legacy(address);
    ASSERT_TRUE(base.ok());
    const auto info = the.pool().find_export(reinterpret_cast<void*>(address));
    ASSERT_TRUE(info.ok()) << info.error().message;
    EXPECT_EQ(info.value().kind, ExportInfo::Kind::cudamalloc);
    EXPECT_EQ(info.value().base, base.value());
    EXPECT_EQ(info.value().base + info.value().offset, address);
    EXPECT_LE(info.value().offset + kBytes - offset, info.value().bytes);
  }
}

TEST(CaseB11, EveryBlockOfTheCudaMallocBackingCanBeExported) {
  CasePool the(kGiB, with(Backing::cudamalloc, ContiguousBacking::cudamalloc));
  // Not the first of its segment, so that the offset counts.
  void* const before = the.allocate(kMiB);
  void* const block = the.allocate(kBytes);
  expect_legacy_export(the, block);
  the.free(block);
  the.free(before);
}

TEST(CaseB11, InMappedPagesOnlyTheContiguousClassCanAndTheErrorSaysSoBeforeTheDriver) {
  CasePool the(kGiB, with(Backing::vmm, ContiguousBacking::cudamalloc));
  void* const pages = the.allocate(kBytes);
  for (const std::uint64_t offset : {std::uint64_t{0}, 2 * kMiB}) {
    char* const address = static_cast<char*>(pages) + offset;
    const auto info = the.pool().find_export(address);
    ASSERT_FALSE(info.ok());
    EXPECT_EQ(info.error().code, Error::not_supported);
    EXPECT_NE(info.error().message.find("contiguous"), std::string::npos);
    EXPECT_NE(info.error().message.find("cudaIpcGetMemHandle"), std::string::npos);
    // As the driver would.
    EXPECT_FALSE(the.device().export_legacy(reinterpret_cast<DeviceAddress>(address)).ok());
    EXPECT_FALSE(the.device().export_handle(reinterpret_cast<DeviceAddress>(address)).ok());
  }
  the.free(pages);
  void* const block = contiguous(the);
  expect_legacy_export(the, block);
  the.free(block);
}

TEST(CaseB11, AHandleIsExportedAsOneAndRefusedByLegacyIpc) {
  CasePool the(kGiB, with(Backing::vmm, ContiguousBacking::handle));
  void* const block = contiguous(the);
  for (const std::uint64_t offset : {std::uint64_t{0}, 2 * kMiB}) {
    const auto address = reinterpret_cast<DeviceAddress>(block) + offset;
    EXPECT_TRUE(the.device().export_handle(address).ok());
    EXPECT_FALSE(the.device().export_legacy(address).ok());
    const auto info = the.pool().find_export(reinterpret_cast<void*>(address));
    ASSERT_TRUE(info.ok());
    EXPECT_EQ(info.value().kind, ExportInfo::Kind::handle);
    EXPECT_EQ(info.value().offset, offset);
  }
  the.free(block);
}

}  // namespace
}  // namespace gpupool::test
