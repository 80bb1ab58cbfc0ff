#include "tests/gpu/kernels_ptx.h"

namespace gpupool::gpu_tests {
namespace {

constexpr char kGeneralHeader[] = R"(
.version 7.0
.target sm_80
.address_size 64
)";

constexpr char kDependentHeader[] = R"(
.version 7.8
.target sm_90
.address_size 64
)";

// A word that is not what it should be is counted, and of the first one the address and both
// values are kept.
constexpr char kCompare[] = R"(
.func compare(.reg .u64 %counter, .reg .u64 %at, .reg .u32 %want, .reg .u32 %got)
{
  .reg .u64 %old;
  .reg .pred %same, %later;
  setp.eq.u32 %same, %want, %got;
  @%same bra over;
  red.global.add.u64 [%counter], 1;
  atom.global.cas.b64 %old, [%counter+8], 0, %at;
  setp.ne.u64 %later, %old, 0;
  @%later bra over;
  st.global.u32 [%counter+16], %want;
  st.global.u32 [%counter+20], %got;
over:
  ret;
}
)";

// Both ranges are walked by the whole grid, sixteen bytes a step; the one to three words behind
// the last sixteen bytes are the first threads'.
constexpr char kFillRange[] = R"(
.func fill_range(.reg .u64 %base, .reg .u64 %words, .reg .u32 %seed)
{
  .reg .u64 %quads, %quad, %rest, %stride, %at, %lane;
  .reg .u32 %low, %size, %number, %a, %b, %c, %d;
  .reg .pred %none, %over;
  mov.u32 %size, %ntid.x;
  mov.u32 %number, %ctaid.x;
  mul.wide.u32 %quad, %number, %size;
  mov.u32 %number, %tid.x;
  cvt.u64.u32 %lane, %number;
  add.u64 %quad, %quad, %lane;
  mov.u32 %number, %nctaid.x;
  mul.wide.u32 %stride, %number, %size;
  shr.u64 %quads, %words, 2;
  and.b64 %rest, %words, 3;
  setp.ge.u64 %none, %quad, %rest;
  @%none bra next;
  shl.b64 %at, %quads, 2;
  add.u64 %at, %at, %quad;
  cvt.u32.u64 %low, %at;
  mad.lo.u32 %a, %low, 0x9E3779B1, %seed;
  shl.b64 %at, %at, 2;
  add.u64 %at, %at, %base;
  st.global.u32 [%at], %a;
next:
  setp.ge.u64 %over, %quad, %quads;
  @%over bra end;
  cvt.u32.u64 %low, %quad;
  shl.b32 %low, %low, 2;
  mad.lo.u32 %a, %low, 0x9E3779B1, %seed;
  add.u32 %b, %a, 0x9E3779B1;
  add.u32 %c, %b, 0x9E3779B1;
  add.u32 %d, %c, 0x9E3779B1;
  shl.b64 %at, %quad, 4;
  add.u64 %at, %at, %base;
  st.global.v4.u32 [%at], {%a, %b, %c, %d};
  add.u64 %quad, %quad, %stride;
  bra next;
end:
  ret;
}
)";

// Mirrored, so that in two grids alike no word is read where it was written.
constexpr char kCheckRange[] = R"(
.func check_range(.reg .u64 %base, .reg .u64 %words, .reg .u32 %seed, .reg .u64 %counter)
{
  .reg .u64 %quads, %quad, %rest, %stride, %at, %lane, %place;
  .reg .u32 %low, %size, %number, %a, %b, %c, %d, %wa, %wb, %wc, %wd;
  .reg .pred %none, %over, %bad;
  mov.u32 %size, %ntid.x;
  mov.u32 %number, %ctaid.x;
  mul.wide.u32 %quad, %number, %size;
  mov.u32 %number, %tid.x;
  cvt.u64.u32 %lane, %number;
  add.u64 %quad, %quad, %lane;
  mov.u32 %number, %nctaid.x;
  mul.wide.u32 %stride, %number, %size;
  shr.u64 %quads, %words, 2;
  and.b64 %rest, %words, 3;
  setp.ge.u64 %none, %quad, %rest;
  @%none bra next;
  shl.b64 %at, %quads, 2;
  add.u64 %at, %at, %quad;
  cvt.u32.u64 %low, %at;
  mad.lo.u32 %wa, %low, 0x9E3779B1, %seed;
  shl.b64 %at, %at, 2;
  add.u64 %at, %at, %base;
  ld.global.u32 %a, [%at];
  call compare, (%counter, %at, %wa, %a);
next:
  setp.ge.u64 %over, %quad, %quads;
  @%over bra end;
  sub.u64 %place, %quads, %quad;
  sub.u64 %place, %place, 1;
  shl.b64 %at, %place, 4;
  add.u64 %at, %at, %base;
  ld.global.v4.u32 {%a, %b, %c, %d}, [%at];
  cvt.u32.u64 %low, %place;
  shl.b32 %low, %low, 2;
  mad.lo.u32 %wa, %low, 0x9E3779B1, %seed;
  add.u32 %wb, %wa, 0x9E3779B1;
  add.u32 %wc, %wb, 0x9E3779B1;
  add.u32 %wd, %wc, 0x9E3779B1;
  setp.ne.u32 %bad, %a, %wa;
  setp.ne.or.u32 %bad, %b, %wb, %bad;
  setp.ne.or.u32 %bad, %c, %wc, %bad;
  setp.ne.or.u32 %bad, %d, %wd, %bad;
  add.u64 %quad, %quad, %stride;
  @!%bad bra next;
  call compare, (%counter, %at, %wa, %a);
  add.u64 %at, %at, 4;
  call compare, (%counter, %at, %wb, %b);
  add.u64 %at, %at, 4;
  call compare, (%counter, %at, %wc, %c);
  add.u64 %at, %at, 4;
  call compare, (%counter, %at, %wd, %d);
  bra next;
end:
  ret;
}
)";

// Polls until the word at %flag is %token: 1; 0 where the time was over first.
constexpr char kAwait[] = R"(
.func (.reg .u32 %met) await(.reg .u64 %flag, .reg .u32 %token, .reg .u64 %limit_ns)
{
  .reg .u64 %start, %now;
  .reg .u32 %seen;
  .reg .pred %there, %again;
  mov.u64 %start, %globaltimer;
poll:
  ld.acquire.gpu.global.u32 %seen, [%flag];
  setp.eq.u32 %there, %seen, %token;
  @%there bra met;
  mov.u64 %now, %globaltimer;
  sub.u64 %now, %now, %start;
  setp.lt.u64 %again, %now, %limit_ns;
  @%again bra poll;
  mov.u32 %met, 0;
  ret;
met:
  mov.u32 %met, 1;
  ret;
}
)";

constexpr char kGeneralEntries[] = R"(
.visible .entry gpupool_fill(.param .u64 address, .param .u64 words, .param .u32 seed)
{
  .reg .u64 %base, %words;
  .reg .u32 %seed;
  ld.param.u64 %base, [address];
  ld.param.u64 %words, [words];
  ld.param.u32 %seed, [seed];
  call fill_range, (%base, %words, %seed);
  ret;
}

.visible .entry gpupool_check(.param .u64 address, .param .u64 words, .param .u32 seed,
                              .param .u64 counter)
{
  .reg .u64 %base, %words, %counter;
  .reg .u32 %seed;
  ld.param.u64 %base, [address];
  ld.param.u64 %words, [words];
  ld.param.u32 %seed, [seed];
  ld.param.u64 %counter, [counter];
  call check_range, (%base, %words, %seed, %counter);
  ret;
}

.visible .entry gpupool_spin(.param .u64 spin_ns)
{
  .reg .u64 %start, %now, %limit;
  .reg .pred %again;
  ld.param.u64 %limit, [spin_ns];
  mov.u64 %start, %globaltimer;
wait:
  mov.u64 %now, %globaltimer;
  sub.u64 %now, %now, %start;
  setp.lt.u64 %again, %now, %limit;
  @%again bra wait;
  ret;
}
)";

// Control words: +0 not 0: end; +4 not 0: the time was over first; +8 rounds so far, 8 bytes.
constexpr char kResident[] = R"(
.visible .entry gpupool_resident(.param .u64 control, .param .u64 address, .param .u64 words,
                                 .param .u32 seed, .param .u64 counter, .param .u64 limit_ns)
{
  .reg .u64 %control, %base, %words, %counter, %limit, %start, %now, %first, %index, %stride;
  .reg .u64 %at, %lane, %rounds;
  .reg .u32 %seed, %round, %stop, %number, %size, %low, %want, %got;
  .reg .pred %over, %end, %leader;
  ld.param.u64 %control, [control];
  ld.param.u64 %base, [address];
  ld.param.u64 %words, [words];
  ld.param.u32 %seed, [seed];
  ld.param.u64 %counter, [counter];
  ld.param.u64 %limit, [limit_ns];
  mov.u32 %size, %ntid.x;
  mov.u32 %number, %ctaid.x;
  mul.wide.u32 %first, %number, %size;
  mov.u32 %number, %tid.x;
  cvt.u64.u32 %lane, %number;
  add.u64 %first, %first, %lane;
  mov.u32 %number, %nctaid.x;
  mul.wide.u32 %stride, %number, %size;
  setp.eq.u64 %leader, %first, 0;
  mov.u64 %rounds, 0;
  mov.u64 %start, %globaltimer;
round:
  ld.volatile.global.u32 %stop, [%control];
  setp.ne.u32 %end, %stop, 0;
  @%end bra end;
  mov.u64 %now, %globaltimer;
  sub.u64 %now, %now, %start;
  setp.lt.u64 %over, %now, %limit;
  @!%over st.volatile.global.u32 [%control+4], 1;
  @!%over bra end;
  cvt.u32.u64 %round, %rounds;
  mov.u64 %index, %first;
word:
  setp.ge.u64 %over, %index, %words;
  @%over bra rounded;
  shl.b64 %at, %index, 2;
  add.u64 %at, %at, %base;
  ld.volatile.global.u32 %got, [%at];
  cvt.u32.u64 %low, %index;
  mad.lo.u32 %want, %low, 0x9E3779B1, %seed;
  add.u32 %want, %want, %round;
  call compare, (%counter, %at, %want, %got);
  add.u32 %want, %want, 1;
  st.volatile.global.u32 [%at], %want;
  add.u64 %index, %index, %stride;
  bra word;
rounded:
  add.u64 %rounds, %rounds, 1;
  @%leader st.volatile.global.u64 [%control+8], %rounds;
  bra round;
end:
  ret;
}
)";

constexpr char kChain[] = R"(
.visible .entry gpupool_chain(.param .u64 previous, .param .u64 previous_words,
                              .param .u32 previous_seed, .param .u64 own, .param .u64 own_words,
                              .param .u32 own_seed, .param .u64 counter)
{
  .reg .u64 %base, %words, %counter;
  .reg .u32 %seed;
  griddepcontrol.launch_dependents;
  ld.param.u64 %base, [previous];
  ld.param.u64 %words, [previous_words];
  ld.param.u32 %seed, [previous_seed];
  ld.param.u64 %counter, [counter];
  griddepcontrol.wait;
  call check_range, (%base, %words, %seed, %counter);
  ld.param.u64 %base, [own];
  ld.param.u64 %words, [own_words];
  ld.param.u32 %seed, [own_seed];
  call fill_range, (%base, %words, %seed);
  ret;
}
)";

// Takes a range into the processor's own cache, by one block of threads.
constexpr char kReadAhead[] = R"(
.func read_ahead(.reg .u64 %base, .reg .u64 %words, .reg .u64 %unused)
{
  .reg .u64 %index, %stride, %at;
  .reg .u32 %lane, %size, %sum, %got;
  .reg .pred %over, %never;
  mov.u32 %lane, %tid.x;
  mov.u32 %size, %ntid.x;
  cvt.u64.u32 %index, %lane;
  cvt.u64.u32 %stride, %size;
  mov.u32 %sum, 0;
next:
  setp.ge.u64 %over, %index, %words;
  @%over bra taken;
  shl.b64 %at, %index, 2;
  add.u64 %at, %at, %base;
  ld.global.ca.u32 %got, [%at];
  xor.b32 %sum, %sum, %got;
  add.u64 %index, %index, %stride;
  bra next;
taken:
  // Without a use the loads would go.
  setp.eq.u32 %never, %sum, 0x5EED5EED;
  @%never st.global.u32 [%unused], %sum;
  ret;
}
)";

// One block of threads each, so that a barrier of the block is one of the grid. The reader may take
// the lines into its cache, and says at +0 of the flags that it is there; the writer waits for
// that, counts at +8 that it was met, writes, and says so at +4. What the reader does ahead: 0
// nothing, 1 it says that it is there, 2 it reads and says that it is there.
constexpr char kProbe[] = R"(
.visible .entry gpupool_write_met(.param .u64 address, .param .u64 words, .param .u32 seed,
                                  .param .u64 flags, .param .u32 token, .param .u64 limit_ns)
{
  .reg .u64 %base, %words, %flags, %limit;
  .reg .u32 %seed, %token, %lane, %met;
  .reg .pred %other, %missed, %alone;
  griddepcontrol.launch_dependents;
  ld.param.u64 %base, [address];
  ld.param.u64 %words, [words];
  ld.param.u32 %seed, [seed];
  ld.param.u64 %flags, [flags];
  ld.param.u32 %token, [token];
  ld.param.u64 %limit, [limit_ns];
  mov.u32 %lane, %tid.x;
  setp.ne.u32 %other, %lane, 0;
  setp.eq.or.u64 %alone, %limit, 0, %other;
  @%alone bra write;
  call (%met), await, (%flags, %token, %limit);
  setp.eq.u32 %missed, %met, 0;
  @!%missed red.global.add.u32 [%flags+8], 1;
write:
  bar.sync 0;
  call fill_range, (%base, %words, %seed);
  membar.gl;
  bar.sync 0;
  @!%other st.release.gpu.global.u32 [%flags+4], %token;
  ret;
}

.visible .entry gpupool_read_met(.param .u64 address, .param .u64 words, .param .u32 seed,
                                 .param .u64 counter, .param .u64 flags, .param .u32 token,
                                 .param .u64 limit_ns, .param .u32 ahead)
{
  .reg .u64 %base, %words, %counter, %flags, %limit, %at;
  .reg .u32 %seed, %token, %lane, %met, %ahead;
  .reg .pred %other, %skip;
  ld.param.u64 %base, [address];
  ld.param.u64 %words, [words];
  ld.param.u32 %seed, [seed];
  ld.param.u64 %counter, [counter];
  ld.param.u64 %flags, [flags];
  ld.param.u32 %token, [token];
  ld.param.u64 %limit, [limit_ns];
  ld.param.u32 %ahead, [ahead];
  mov.u32 %lane, %tid.x;
  setp.ne.u32 %other, %lane, 0;
  setp.eq.u32 %skip, %ahead, 0;
  @%skip bra after;
  setp.eq.u32 %skip, %ahead, 1;
  @%skip bra there;
  add.u64 %at, %flags, 12;
  call read_ahead, (%base, %words, %at);
there:
  bar.sync 0;
  @!%other st.release.gpu.global.u32 [%flags], %token;
after:
  griddepcontrol.wait;
  setp.eq.or.u64 %skip, %limit, 0, %other;
  @%skip bra check;
  add.u64 %at, %flags, 4;
  call (%met), await, (%at, %token, %limit);
check:
  bar.sync 0;
  call check_range, (%base, %words, %seed, %counter);
  ret;
}

.visible .entry gpupool_write_and_read(.param .u64 write_at, .param .u64 read_at,
                                       .param .u64 words, .param .u32 seed, .param .u64 counter,
                                       .param .u64 flags)
{
  .reg .u64 %write, %read, %words, %counter, %flags;
  .reg .u32 %seed;
  ld.param.u64 %write, [write_at];
  ld.param.u64 %read, [read_at];
  ld.param.u64 %words, [words];
  ld.param.u32 %seed, [seed];
  ld.param.u64 %counter, [counter];
  ld.param.u64 %flags, [flags];
  add.u64 %flags, %flags, 12;
  call read_ahead, (%read, %words, %flags);
  bar.sync 0;
  call fill_range, (%write, %words, %seed);
  membar.gl;
  bar.sync 0;
  call check_range, (%read, %words, %seed, %counter);
  ret;
}
)";

}  // namespace

std::string general_ptx() {
  return std::string(kGeneralHeader) + kCompare + kFillRange + kCheckRange + kGeneralEntries +
         kResident;
}

std::string dependent_ptx() {
  return std::string(kDependentHeader) + kCompare + kFillRange + kCheckRange + kAwait + kReadAhead +
         kChain + kProbe;
}

}  // namespace gpupool::gpu_tests
