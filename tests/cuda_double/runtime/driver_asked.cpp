// What a program asks the driver that has not loaded torch: dpkit does so, in
// a process of its own, to learn which GPUs torch can use. `run` puts this
// library where the linker looks for libcuda.so.1.
#include <cstdio>

#include <cuda.h>
#include <cuda_runtime_api.h>

#include "devices.h"

namespace {

// A driver of CUDA 13.2, whatever torch has been built for.
constexpr int cuda_of_driver = 13020;

bool properties_of(CUdevice device, cudaDeviceProp* properties) {
  return cudaGetDeviceProperties(properties, device) == cudaSuccess;
}

}  // namespace

extern "C" {

CUresult cuInit(unsigned) {
  return cuda_double::num_devices() > 0 ? CUDA_SUCCESS : CUDA_ERROR_NO_DEVICE;
}

CUresult cuDriverGetVersion(int* version) {
  *version = cuda_of_driver;
  return CUDA_SUCCESS;
}

CUresult cuDeviceGetCount(int* count) {
  *count = cuda_double::num_devices();
  return CUDA_SUCCESS;
}

CUresult cuDeviceGetName(char* name, int length, CUdevice device) {
  cudaDeviceProp properties;
  if (!properties_of(device, &properties)) return CUDA_ERROR_INVALID_DEVICE;
  std::snprintf(name, length, "%s", properties.name);
  return CUDA_SUCCESS;
}

CUresult cuDeviceGetAttribute(
    int* value, CUdevice_attribute which, CUdevice device) {
  cudaDeviceProp properties;
  if (!properties_of(device, &properties)) return CUDA_ERROR_INVALID_DEVICE;
  if (which == CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MAJOR)
    *value = properties.major;
  else if (which == CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MINOR)
    *value = properties.minor;
  else
    return CUDA_ERROR_NOT_SUPPORTED;
  return CUDA_SUCCESS;
}

CUresult cuGetErrorName(CUresult error, const char** name) {
  *name = error == CUDA_ERROR_NO_DEVICE ? "CUDA_ERROR_NO_DEVICE"
                                        : "CUDA_ERROR_UNKNOWN";
  return CUDA_SUCCESS;
}

}  // extern "C"
