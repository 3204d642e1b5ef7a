#pragma once
#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include <ATen/core/Tensor.h>
#include <c10/core/Device.h>

#include "composer/core/metric.h"

namespace composer {

namespace dist {
class World;
}  // namespace dist

// Adds up the sums of a set of metrics over all ranks, and puts their rows together in the order of ranks; all ranks
// make the same calls. Ranks that have seen no batch count as 0.
class MetricSums {
 public:
  // Throws ConfigError for a metric without sums or rows.
  static void check(Metric& metric);

  // While it lives, the metrics have the sums and rows of all ranks; afterwards they have their own again. `updated`:
  // whether this rank has added anything since the last reset. Throws ConfigError for a metric without sums or rows,
  // and if the shapes of the sums or rows differ between ranks.
  class OverRanks {
   public:
    OverRanks(MetricSums& sums, dist::World& world, const std::vector<std::shared_ptr<Metric>>& metrics, bool updated,
              at::Device device);
    ~OverRanks();
    OverRanks(const OverRanks&) = delete;
    OverRanks& operator=(const OverRanks&) = delete;
    void stay() { stays_ = true; }             // the metrics keep the sums and rows of all ranks
    bool updated() const { return updated_; }  // whether any rank has added anything

   private:
    const std::vector<std::shared_ptr<Metric>>& metrics_;
    void gather_rows(dist::World& world, at::Device device);

    std::vector<at::Tensor> own_;
    std::vector<std::vector<at::Tensor>> own_rows_;
    bool updated_ = false, stays_ = false;
  };

 private:
  // The properties of a sum; unknown as long as no rank has one.
  struct Shape {
    bool known = false, on_cpu = true;
    at::ScalarType type = at::kDouble;
    std::vector<std::int64_t> sizes;
  };
  void learn(dist::World& world, const std::vector<at::Tensor>& own, const std::vector<std::string>& names);

  std::vector<Shape> shapes_;
};

}  // namespace composer
