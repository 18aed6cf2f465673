/* Stands in for libcuda.so.1 and libnvidia-ml.so.1 where there is no GPU.

   STUB_DRIVER        the driver's version: 535.104.05
   STUB_CUDA          the newest CUDA that it knows: 12020 is 12.2
   STUB_CAPABILITIES  one word for each GPU: "70 80" is a V100 and an A100
   STUB_ERROR         what cuInit returns; 0 if it is not set
   STUB_STARTED       a file: each process that starts the driver adds its id
*/
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

static const char *setting(const char *name, const char *otherwise) {
    const char *found = getenv(name);
    return found ? found : otherwise;
}

/* The capability of GPU number `index`: 70; -1 if there are fewer. */
static int capability(int index) {
    const char *rest = setting("STUB_CAPABILITIES", "");
    int number, length;
    while (sscanf(rest, "%d%n", &number, &length) == 1) {
        if (index-- == 0) return number;
        rest += length;
    }
    return -1;
}

static int count(void) {
    int gpus = 0;
    while (capability(gpus) != -1) gpus++;
    return gpus;
}

/* NVML: it knows nothing of CUDA, nor of what torch was built for. */

int nvmlInit(void) { return 0; }
int nvmlInit_v2(void) { return 0; }

int nvmlDeviceGetCount_v2(unsigned *gpus) { *gpus = count(); return 0; }

int nvmlSystemGetDriverVersion(char *version, unsigned length) {
    snprintf(version, length, "%s", setting("STUB_DRIVER", "580.65.06"));
    return 0;
}

/* The driver. */

int cuDriverGetVersion(int *version) {
    *version = atoi(setting("STUB_CUDA", "13020"));
    return 0;
}

int cuInit(unsigned flags) {
    const char *path = getenv("STUB_STARTED");
    FILE *file = path ? fopen(path, "a") : NULL;
    if (file) {
        fprintf(file, "%d\n", getpid());
        fclose(file);
    }
    return atoi(setting("STUB_ERROR", "0"));
}

int cuGetErrorName(int error, const char **name) {
    *name = error == 802 ? "CUDA_ERROR_SYSTEM_NOT_READY" : NULL;
    return *name ? 0 : 1;
}

int cuDeviceGetCount(int *gpus) { *gpus = count(); return 0; }

int cuDeviceGet(int *gpu, int index) { *gpu = index; return 0; }

int cuDeviceGetName(char *name, int length, int gpu) {
    snprintf(name, length, "Stub %d", capability(gpu));
    return 0;
}

int cuDeviceGetAttribute(int *value, int attribute, int gpu) {
    *value = capability(gpu) / 10;                   /* 75: the major number */
    if (attribute == 76) *value = capability(gpu) % 10;
    return 0;
}
