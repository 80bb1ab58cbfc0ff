// Tells a process from every other one that has, or had, its number: on this host, since its start.
//
// Thread safety: plain functions. Cost: one or two small files of /proc.
#ifndef GPUPOOL_EXPORTER_DISCOVERY_PROCESS_ID_H_
#define GPUPOOL_EXPORTER_DISCOVERY_PROCESS_ID_H_

#include <sys/types.h>

#include <string>

namespace gpupool::internal {

/// When it was started: the machine's boot and the clock ticks since; "" where that is not to be
/// known: no such process, one that has ended and is not waited for yet, or no /proc.
std::string process_start(pid_t pid);

/// False where there is certainly no process of this number.
bool may_exist(pid_t pid);

/// False where the process `pid` that began at `start` has ended for certain. True also where
/// nothing tells, as with another user's process under hidepid.
bool may_run(pid_t pid, const std::string& start);

/// Which name space the numbers of processes that this one sees are of; "" for the machine's own.
/// Containers that share a host's name have different ones, in which each may have a process 1.
std::string pid_namespace();

/// The host's name as uname(2) has it.
std::string host_name();

}  // namespace gpupool::internal

#endif  // GPUPOOL_EXPORTER_DISCOVERY_PROCESS_ID_H_
