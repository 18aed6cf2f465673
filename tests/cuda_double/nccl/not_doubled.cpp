// What of NCCL is not doubled: memory that ranks share, and communicators
// that change their size. To ask for it is an error with a name.
#include <string>

#include <nccl.h>

#include "communicator.h"

#define NOT_DOUBLED(name)                                            \
  extern "C" ncclResult_t not_doubled_##name() asm(#name);           \
  extern "C" ncclResult_t not_doubled_##name() {                     \
    return cuda_double::guarded([] {                                 \
      throw cuda_double::NcclError(                                  \
          ncclInvalidUsage, std::string("not doubled: ") + #name);   \
    });                                                              \
  }

NOT_DOUBLED(ncclCommGetUniqueId)
NOT_DOUBLED(ncclCommGrow)
NOT_DOUBLED(ncclCommMemStats)
NOT_DOUBLED(ncclCommResume)
NOT_DOUBLED(ncclCommShrink)
NOT_DOUBLED(ncclCommSuspend)
NOT_DOUBLED(ncclCommWindowDeregister)
NOT_DOUBLED(ncclCommWindowRegister)
NOT_DOUBLED(ncclDevCommCreate)
NOT_DOUBLED(ncclDevCommDestroy)
NOT_DOUBLED(ncclGetLsaMultimemDevicePointer)
NOT_DOUBLED(ncclGetPeerDevicePointer)
NOT_DOUBLED(ncclGroupSimulateEnd)
NOT_DOUBLED(ncclPutSignal)
NOT_DOUBLED(ncclSignal)
NOT_DOUBLED(ncclWaitSignal)
NOT_DOUBLED(ncclWinGetUserPtr)
