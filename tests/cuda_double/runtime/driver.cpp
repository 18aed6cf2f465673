// The few functions of the driver, libcuda.so.1, that PyTorch links.
//
// This library bears the driver's name as its soname, so that who asks for
// libcuda.so.1 in this process is given it.
#include <cuda.h>

#include "devices.h"

extern "C" {

CUresult cuDevicePrimaryCtxGetState(CUdevice, unsigned* flags, int* active) {
  *flags = 0;
  *active = 1;
  return CUDA_SUCCESS;
}

CUresult cuDeviceGet(CUdevice* device, int ordinal) {
  if (ordinal >= cuda_double::num_devices()) return CUDA_ERROR_INVALID_DEVICE;
  *device = ordinal;
  return CUDA_SUCCESS;
}

CUresult cuGetErrorString(CUresult, const char** text) {
  *text = "an error of the driver that the double does not have";
  return CUDA_SUCCESS;
}

}  // extern "C"

// Under other names, as their types differ from those in cuda.h.
#define ALIAS(name)                                              \
  extern "C" CUresult not_doubled_##name() asm(#name);           \
  extern "C" CUresult not_doubled_##name() {                     \
    return CUDA_ERROR_NOT_SUPPORTED;                             \
  }

ALIAS(cuCtxGetCurrent)
ALIAS(cuCtxSetCurrent)
ALIAS(cuDevicePrimaryCtxRetain)
ALIAS(cuFuncGetAttribute)
ALIAS(cuFuncSetAttribute)
ALIAS(cuFuncSetCacheConfig)
ALIAS(cuLaunchCooperativeKernel)
ALIAS(cuLaunchKernel)
ALIAS(cuLinkAddData_v2)
ALIAS(cuLinkComplete)
ALIAS(cuLinkCreate_v2)
ALIAS(cuModuleGetFunction)
ALIAS(cuModuleLoad)
ALIAS(cuModuleLoadData)
ALIAS(cuModuleLoadDataEx)
ALIAS(cuModuleUnload)
ALIAS(cuOccupancyMaxActiveBlocksPerMultiprocessor)
ALIAS(cuPointerGetAttribute)
ALIAS(cuTensorMapEncodeTiled)
