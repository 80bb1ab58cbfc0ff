// What of the driver's a block lies in: what another process is given instead of the block.
#include "base/units.h"
#include "pool/pool_impl.h"

namespace gpupool {

using internal::MutexLock;

Result<ExportInfo, Status> Pool::find_export(const void* pointer) const {
  Impl& impl = *impl_;
  if (impl.is_forked()) return Status{Error::not_supported, "find_export: in a forked child"};
  const auto address = reinterpret_cast<DeviceAddress>(pointer);
  MutexLock lock(impl.mu_);
  const auto target = impl.find_target(pointer, true);
  if (!target.exists() || !impl.record_of(target).load().is_live()) {
    return Status{Error::invalid_argument, "find_export: not an address in a live block"};
  }
  ExportInfo info;
  if (target.fallback != nullptr) {
    const internal::Fallback& own = *target.fallback;
    info.kind = own.has_own_addresses ? ExportInfo::Kind::handle : ExportInfo::Kind::cudamalloc;
    info.base = own.allocation;
    info.bytes = own.bytes;
  } else if (impl.arena_->is_contiguous()) {
    return Status{
        Error::not_supported,
        "find_export: this block lies in mapped pages (backing 'vmm'), which "
        "cudaIpcGetMemHandle and RDMA registration refuse and which move when they are "
        "free; allocate it with AllocationClass::contiguous, or use backing 'cudamalloc'"};
  } else {
    const auto unit = impl.arena_->find_unit(address);
    const internal::Mapping& segment = impl.arena_->mapping_of(*unit / internal::kUnitsPerPage);
    info.base = segment.segment;
    info.bytes = segment.bytes;
  }
  info.offset = address - info.base;
  return info;
}

}  // namespace gpupool
