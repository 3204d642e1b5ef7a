#include "composer/device/cuda/gpu_reader.h"

#include <map>
#include <string>

#include "composer/core/error.h"
#include "tests/support/by_key.h"
#include "tests/support/doctest.h"
#include "tests/support/places.h"

namespace composer::test::gpu_reader_test {

using cuda::GpuReader;

namespace {

std::map<std::string, double> gpu(int device, const char* visible_devices) {
  Readings readings;
  GpuReader(beside_this_program("libfake_nvml.so").c_str(), cuda::name_in_list(device, visible_devices)).add(readings);
  return by_key(readings);
}

}  // namespace

TEST_CASE("A GPU is described by NVML, in watts and degrees") {
  CHECK(gpu(0, "") ==
        std::map<std::string, double>{
            {"gpu_percentage", 10}, {"memory_percentage", 11}, {"gpu_temperature_C", 12}, {"gpu_power_usage_W", 1.5}});
  CHECK(GpuReader(beside_this_program("libfake_nvml.so").c_str(), "0").name() == "NVIDIA H200");
  CHECK(gpu(2, "").empty());  // reports nothing
  CHECK(GpuReader(beside_this_program("libfake_nvml.so").c_str(), "2").name().empty());
}

TEST_CASE("A GPU is the one that CUDA_VISIBLE_DEVICES names") {
  CHECK(gpu(0, "1,0")["gpu_percentage"] == 20);
  CHECK(gpu(1, "1, 0")["gpu_percentage"] == 10);
  CHECK(gpu(0, "GPU-b")["gpu_percentage"] == 20);
  CHECK_THROWS_WITH_AS(gpu(2, "1,0"), "CUDA_VISIBLE_DEVICES does not list as many as 3 devices", Error);
  CHECK_THROWS_WITH_AS(gpu(0, "GPU-x"), "NVML does not know the device GPU-x (error 6)", Error);
}

TEST_CASE("A GPU is found by its place on the bus, whatever numbers it has") {
  const std::string nvml = beside_this_program("libfake_nvml.so");
  Readings readings;
  GpuReader(nvml.c_str(), "0000:0A:00.0").add(readings);
  CHECK(by_key(readings)["gpu_percentage"] == 20);
  CHECK_THROWS_WITH_AS(GpuReader(nvml.c_str(), "0000:0B:00.0"), "NVML does not know the device 0000:0B:00.0 (error 6)",
                       Error);
}

TEST_CASE("A missing NVML is an error that names it") {
  CHECK_THROWS_AS(GpuReader("libno_such_nvml.so.1", "0"), Error);
}

}  // namespace composer::test::gpu_reader_test
