// The driver, libcuda.so.1: what it tells of its GPUs, to whoever asks it
// without CUDA's runtime; and the few functions of it that PyTorch links.
//
// This library bears the driver's name as its soname, and lies under it in
// the folder that `run` puts on the path of libraries.
#include <cstdio>

#include <cuda.h>
#include <cuda_runtime_api.h>

#include "devices.h"

using namespace cuda_double;

extern "C" {

CUresult cuInit(unsigned) {
  return num_devices() > 0 ? CUDA_SUCCESS : CUDA_ERROR_NO_DEVICE;
}

CUresult cuDriverGetVersion(int* version) {
  *version = CUDA_VERSION;
  return CUDA_SUCCESS;
}

CUresult cuDeviceGetCount(int* count) {
  *count = num_devices();
  return CUDA_SUCCESS;
}

CUresult cuDeviceGet(CUdevice* device, int ordinal) {
  if (ordinal >= num_devices()) return CUDA_ERROR_INVALID_DEVICE;
  *device = ordinal;
  return CUDA_SUCCESS;
}

CUresult cuDeviceGetName(char* name, int length, CUdevice device) {
  cudaDeviceProp properties;
  if (cudaGetDeviceProperties(&properties, device) != cudaSuccess)
    return CUDA_ERROR_INVALID_DEVICE;
  std::snprintf(name, length, "%s", properties.name);
  return CUDA_SUCCESS;
}

// The attributes have one number each, in the driver and in the runtime.
CUresult cuDeviceGetAttribute(
    int* value, CUdevice_attribute attribute, CUdevice device) {
  auto same = static_cast<cudaDeviceAttr>(attribute);
  bool done = cudaDeviceGetAttribute(value, same, device) == cudaSuccess;
  return done ? CUDA_SUCCESS : CUDA_ERROR_INVALID_DEVICE;
}

CUresult cuDevicePrimaryCtxGetState(CUdevice, unsigned* flags, int* active) {
  *flags = 0;
  *active = 1;
  return CUDA_SUCCESS;
}

CUresult cuGetErrorName(CUresult error, const char** name) {
  *name = error == CUDA_ERROR_NO_DEVICE ? "CUDA_ERROR_NO_DEVICE"
                                        : "CUDA_ERROR_NOT_SUPPORTED";
  return CUDA_SUCCESS;
}

CUresult cuGetErrorString(CUresult, const char** text) {
  *text = "an error of the driver that the double does not have";
  return CUDA_SUCCESS;
}

}  // extern "C"

// Under other names, as their types differ from those in cuda.h.
#define NOT_DOUBLED(name)                              \
  extern "C" CUresult not_doubled_##name() asm(#name); \
  extern "C" CUresult not_doubled_##name() {           \
    return CUDA_ERROR_NOT_SUPPORTED;                   \
  }

NOT_DOUBLED(cuCtxGetCurrent)
NOT_DOUBLED(cuCtxSetCurrent)
NOT_DOUBLED(cuDevicePrimaryCtxRetain)
NOT_DOUBLED(cuFuncGetAttribute)
NOT_DOUBLED(cuFuncSetAttribute)
NOT_DOUBLED(cuFuncSetCacheConfig)
NOT_DOUBLED(cuLaunchCooperativeKernel)
NOT_DOUBLED(cuLaunchKernel)
NOT_DOUBLED(cuLinkAddData_v2)
NOT_DOUBLED(cuLinkComplete)
NOT_DOUBLED(cuLinkCreate_v2)
NOT_DOUBLED(cuModuleGetFunction)
NOT_DOUBLED(cuModuleLoad)
NOT_DOUBLED(cuModuleLoadData)
NOT_DOUBLED(cuModuleLoadDataEx)
NOT_DOUBLED(cuModuleUnload)
NOT_DOUBLED(cuOccupancyMaxActiveBlocksPerMultiprocessor)
NOT_DOUBLED(cuPointerGetAttribute)
NOT_DOUBLED(cuTensorMapEncodeTiled)
