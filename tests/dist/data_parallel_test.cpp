#include "composer/dist/data_parallel.h"

#include <algorithm>
#include <cstdint>
#include <functional>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include <ATen/ATen.h>
#include <torch/csrc/distributed/c10d/ProcessGroup.hpp>
#include <torch/nn/modules/batchnorm.h>
#include <torch/nn/modules/container/sequential.h>
#include <torch/nn/modules/linear.h>

#include "composer/core/error.h"
#include "tests/dist/results_in_ranks.h"
#include "tests/dist/small_net.h"
#include "tests/support/doctest.h"

namespace composer::dist::test::data_parallel_test {
namespace {

TEST_CASE("After each backward pass all ranks have the mean of their gradients, with equal bits") {
  struct Row {
    int ranks;
    at::ScalarType dtype;
    double tolerance;
  };
  for (const Row& row : {Row{2, at::kFloat, 1e-6}, Row{4, at::kFloat, 1e-6}, Row{2, at::kDouble, 1e-12},
                         Row{4, at::kDouble, 1e-12}, Row{2, at::kBFloat16, 0.05}, Row{2, at::kHalf, 0.005}}) {
    CAPTURE(row.ranks);
    CAPTURE(row.dtype);
    double worst = 0;
    const auto by_rank = results_in_ranks(row.ranks, [&](const std::shared_ptr<World>& world) {
      const SmallNet net(row.dtype);
      DataParallel parallel(world, net.parameters, net.buffers);
      Gradients all_steps;
      double difference_here = 0;
      for (int step = 0; step < 4; ++step) {
        std::vector<Gradients> of_ranks;
        for (int rank = 0; rank < row.ranks; ++rank)
          of_ranks.push_back(local_gradients(net, samples(rank, step, row.dtype)));
        reduce(parallel, net, samples(world->rank(), step, row.dtype));
        const Gradients reduced = gradients_of(net.parameters);
        difference_here = std::max(difference_here, difference(reduced, mean_of(of_ranks)));
        all_steps.insert(all_steps.end(), reduced.begin(), reduced.end());
        descend(net);
      }
      if (world->rank() == 0) worst = difference_here;
      return all_steps;
    });
    CHECK(worst < row.tolerance);
    CHECK(all_equal_bits(by_rank));
  }
}

TEST_CASE("DataParallel takes the parameters of a module once each, and backward() averages") {
  const auto gradients = results_in_ranks(2, [](const std::shared_ptr<World>& world) {
    const auto shared = std::make_shared<torch::nn::LinearImpl>(3, 3);
    torch::nn::Sequential net(torch::nn::Linear(5, 3), shared, torch::nn::BatchNorm1d(3), shared);
    net[0]->as<torch::nn::Linear>()->bias.set_requires_grad(false);
    DataParallel parallel(world, *net);
    const at::Tensor x = samples(world->rank(), 0);
    parallel.before_forward();
    parallel.backward(net->forward(x).pow(2).sum());
    Gradients all;
    for (const at::Tensor& parameter : net->parameters())
      if (parameter.requires_grad()) all.push_back(parameter.grad().clone());
    return all;
  });
  CHECK(gradients[0].size() >= 5);
  CHECK(all_equal_bits(gradients));
  const auto alone = World::alone();
  torch::nn::Linear layer(5, 3);
  DataParallel parallel(alone, *layer);
  parallel.before_forward();
  parallel.backward(layer->forward(samples(0, 0)).sum());
  CHECK(layer->weight.grad().defined());
}

TEST_CASE("Of several microbatches only the last reduces, all that has been added up") {
  struct Result {
    double before_last, after_last;
  };
  const auto results = results_in_ranks(2, [](const std::shared_ptr<World>& world) {
    const SmallNet net;
    DataParallel parallel(world, net.parameters, net.buffers);
    Result worst{0, 0};
    for (int step = 0; step < 3; ++step) {
      const auto sum_of = [&](int rank, int microbatches) {
        SmallNet copy;
        for (std::size_t i = 0; i < 4; ++i) copy.tensor(i).detach().copy_(net.tensor(i).detach());
        for (int k = 0; k < microbatches; ++k) accumulate(copy, samples(rank, 10 * step + k));
        return gradients_of(copy.parameters);
      };
      accumulate(net, samples(world->rank(), 10 * step));
      accumulate(net, samples(world->rank(), 10 * step + 1));
      worst.before_last =
          std::max(worst.before_last, difference(gradients_of(net.parameters), sum_of(world->rank(), 2)));
      reduce(parallel, net, samples(world->rank(), 10 * step + 2));
      const Gradients mean = mean_of({sum_of(0, 3), sum_of(1, 3)});
      worst.after_last = std::max(worst.after_last, difference(gradients_of(net.parameters), mean));
      descend(net);
    }
    return worst;
  });
  for (const Result& result : results) {
    CHECK(result.before_last == 0);
    CHECK(result.after_last < 1e-6);
  }
}

TEST_CASE("Ranks that have the same values already are not given rank 0's") {
  const auto sums = results_in_ranks(2, [](const std::shared_ptr<World>& world) {
    std::vector<double> sums;
    for (const bool share_values : {false, true}) {
      const SmallNet net(at::kFloat, 10.0 * world->rank());
      const DataParallel parallel(world, net.parameters, net.buffers, {.share_values = share_values});
      double sum = net.buffers[0].second.sum().item<double>();
      for (const auto& [name, tensor] : net.parameters) sum += tensor.sum().item<double>();
      sums.push_back(sum);
    }
    return sums;
  });
  CHECK(sums[0][0] != sums[1][0]);
  CHECK(sums[0][1] == sums[1][1]);
}

TEST_CASE("Ranks that differ get an error that shows the first difference, on all ranks") {
  struct Row {
    const char* text;
    std::function<void(SmallNet& net, DataParallelOptions& options)> change;
  };
  const Row rows[] = {
      {"rank 0 has the parameter second: Float [7, 6]; rank 1 has the parameter second: Float [7, 7]",
       [](SmallNet& net, auto&) {
         net.parameters[1].second = at::zeros({7, 7}).requires_grad_();
       }},
      {"rank 0 has the parameter second: Float [7, 6]; rank 1 has the parameter second: Double [7, 6]",
       [](SmallNet& net, auto&) {
         net.parameters[1].second = at::zeros({7, 6}, at::kDouble).requires_grad_();
       }},
      {"rank 0 has the parameter second: Float [7, 6]; rank 1 has the parameter 2nd: Float [7, 6]",
       [](SmallNet& net, auto&) { net.parameters[1].first = "2nd"; }},
      {"rank 0 has the parameter first: Float [6, 5]; rank 1 has the parameter head: Float [3, 7]",
       [](SmallNet& net, auto&) { std::swap(net.parameters[0], net.parameters[2]); }},
      {"rank 0 has the parameter other head: Float [3, 7]; rank 1 has the buffer passes: Float [1]",
       [](SmallNet& net, auto&) { net.parameters.pop_back(); }},
      {"rank 0 has nothing more; rank 1 has the buffer more: Float [2]",
       [](SmallNet& net, auto&) { net.buffers.emplace_back("more", at::zeros({2})); }},
      {"rank 1 has the parameter second: Float [7, 6] with strides [1, 7]",
       [](SmallNet& net, auto&) {
         net.parameters[1].second = at::zeros({6, 7}).t().detach().requires_grad_();
       }},
      {"gradients_in_bf16 = 0, broadcast_buffers = 1, share_values = 1; rank 1 has bucket_cap_mb = 25, "
       "find_unused_parameters = unset, "
       "gradients_in_bf16 = 1",
       [](SmallNet&, DataParallelOptions& options) { options.gradients_in_bf16 = true; }},
  };
  for (const Row& row : rows) {
    CAPTURE(row.text);
    const auto errors = errors_in_ranks(2, [&](const std::shared_ptr<World>& world) {
      SmallNet net;
      DataParallelOptions options;
      if (world->rank() == 1) row.change(net, options);
      const DataParallel parallel(world, net.parameters, net.buffers, options);
    });
    for (const std::string& error : errors) {
      CAPTURE(error);
      CHECK(error.find(row.text) != std::string::npos);
    }
    CHECK(errors[0] == errors[1]);
  }
}

TEST_CASE("Invalid parameters are an error with their names") {
  struct Row {
    const char* text;
    std::function<void(SmallNet& net)> change;
  };
  const Row rows[] = {
      {"first and twice are the same tensor",
       [](SmallNet& net) { net.parameters.emplace_back("twice", net.tensor(0)); }},
      {"head does not require gradients", [](SmallNet& net) { net.tensor(2).set_requires_grad(false); }},
      {"head is not a leaf tensor", [](SmallNet& net) { net.parameters[2].second = net.tensor(2) * 2; }},
      {"there is no parameter to train", [](SmallNet& net) { net.parameters.clear(); }},
  };
  for (const Row& row : rows) {
    CAPTURE(row.text);
    for (const std::string& error : errors_in_ranks(2, [&](const std::shared_ptr<World>& world) {
           SmallNet net;
           row.change(net);
           const DataParallel parallel(world, net.parameters, net.buffers);
         }))
      CHECK(error.find(row.text) != std::string::npos);
  }
}

TEST_CASE("All ranks begin with rank 0's parameters, and with its buffers before each forward pass") {
  for (const bool broadcast : {true, false}) {
    CAPTURE(broadcast);
    struct Result {
      Gradients parameters;
      double at_first, after_a_pass;
      bool whole_is_right;
    };
    const auto results = results_in_ranks(4, [&](const std::shared_ptr<World>& world) {
      const SmallNet net(at::kFloat, 10 * world->rank());
      DataParallel parallel(world, net.parameters, net.buffers, {.broadcast_buffers = broadcast});
      Result result;
      for (const auto& [name, tensor] : net.parameters) result.parameters.push_back(tensor.detach().clone());
      const at::Tensor& passes = net.buffers[0].second;
      result.at_first = passes.item<double>();
      passes.add_(world->rank());
      parallel.before_forward();
      result.after_a_pass = passes.item<double>();
      result.whole_is_right = at::equal(net.buffers[1].second, at::ones({2}, at::kLong));
      return result;
    });
    for (std::size_t r = 0; r < results.size(); ++r) {
      CHECK(equal_bits(results[r].parameters, results[0].parameters));
      CHECK(results[r].at_first == 0);
      CHECK(results[r].after_a_pass == (broadcast ? 0 : static_cast<double>(r)));
      CHECK(results[r].whole_is_right);
    }
  }
}

TEST_CASE("Gradients in bf16 are the mean within its rounding, with equal bits on all ranks") {
  for (const int ranks : {2, 4}) {
    CAPTURE(ranks);
    std::vector<double> error(2), largest(2);
    for (const bool in_bf16 : {false, true}) {
      const auto by_rank = results_in_ranks(ranks, [&](const std::shared_ptr<World>& world) {
        const SmallNet net;
        DataParallel parallel(world, net.parameters, net.buffers,
                              {.find_unused_parameters = true, .gradients_in_bf16 = in_bf16});
        Gradients all;
        for (int step = 0; step < 3; ++step) {
          reduce(parallel, net, samples(world->rank(), step), 0);
          for (const at::Tensor& one : gradients_of(net.parameters)) all.push_back(one);
          clear(net.parameters);
        }
        return all;
      });
      CHECK(all_equal_bits(by_rank));
      CHECK_FALSE(by_rank[0][3].defined());
      std::vector<Gradients> of_ranks;
      for (int rank = 0; rank < ranks; ++rank) {
        Gradients all;
        for (int step = 0; step < 3; ++step)
          for (const at::Tensor& one : local_gradients(SmallNet(), samples(rank, step), 0)) all.push_back(one);
        of_ranks.push_back(all);
      }
      error[in_bf16 ? 1 : 0] = difference(by_rank[0], mean_of(of_ranks));
      for (const Gradients& gradients : of_ranks)
        for (const at::Tensor& one : gradients)
          if (one.defined()) largest[1] = std::max(largest[1], one.abs().max().item<double>());
    }
    CHECK(error[0] < 1e-6);
    CHECK(error[1] > error[0]);
    CHECK(error[1] < largest[1] * 0.00390625 * ranks);
  }
}

// Collectives that this rank has begun.
std::uint64_t collectives(const World& world) {
  return world.group()->getBackend(c10::DeviceType::CPU)->getSequenceNumberForGroup();
}

TEST_CASE("From the second step on, gradients travel in buckets of bucket_cap_mb and without other messages") {
  const auto by_rank = results_in_ranks(2, [](const std::shared_ptr<World>& world) {
    DataParallel::Named weights;  // of 1 MiB
    for (int i = 0; i < 5; ++i) weights.emplace_back(join("weight ", i), at::eye(512).requires_grad_());
    DataParallel parallel(world, weights, {}, {.bucket_cap_mb = 1, .find_unused_parameters = true});
    std::uint64_t before_last_gradient = 0;
    weights.front().second.register_hook([&](const at::Tensor&) { before_last_gradient = collectives(*world); });
    std::vector<std::uint64_t> counts;
    for (const std::size_t used : {5, 5, 4}) {  // in the third step, the weight of the first bucket has no gradient
      parallel.before_forward();
      const std::uint64_t begin = collectives(*world);
      at::Tensor x = at::ones({1, 512});
      for (std::size_t i = 0; i < used; ++i) x = at::linear(x, weights[i].second);
      parallel.before_backward({x});
      x.sum().backward();
      counts.push_back(before_last_gradient - begin);
      parallel.after_backward();
      counts.push_back(collectives(*world) - begin);
      clear(weights);
    }
    return counts;
  });
  // Each weight fills a bucket, so that who had which gradients travels in a sixth.
  for (const auto& counts : by_rank) CHECK(counts == std::vector<std::uint64_t>{0, 1, 4, 6, 4, 6});
}

TEST_CASE("A thousand parameters of several dtypes and one without elements are averaged in several buckets") {
  const auto by_rank = results_in_ranks(2, [](const std::shared_ptr<World>& world) {
    DataParallel::Named parameters;
    const at::ScalarType dtypes[] = {at::kFloat, at::kFloat, at::kDouble, at::kHalf, at::kBFloat16};
    for (int i = 0; i < 1000; ++i)
      parameters.emplace_back(join("weight ", i), at::ones({1000 + i % 7}, dtypes[i % 5]).requires_grad_());
    parameters.emplace_back("empty", at::ones({0, 3}).requires_grad_());
    DataParallel parallel(world, parameters, {}, {.bucket_cap_mb = 1});
    bool right = true;
    for (int step = 0; step < 3; ++step) {
      parallel.before_forward();
      at::Tensor loss = at::zeros({}, at::kDouble);
      for (std::size_t i = 0; i < parameters.size(); ++i)
        loss = loss + parameters[i].second.sum().to(at::kDouble) * (static_cast<double>(i % 3) + world->rank());
      parallel.before_backward({loss});
      loss.backward();
      parallel.after_backward();
      for (std::size_t i = 0; i < parameters.size(); ++i) {
        const at::Tensor& gradient = parameters[i].second.grad();
        right = right && at::equal(gradient, at::full_like(gradient, static_cast<double>(i % 3) + 0.5));
      }
      clear(parameters);
    }
    return right;
  });
  for (const bool right : by_rank) CHECK(right);
}

TEST_CASE("A backward pass outside of a step, and one after the end of DataParallel, adds up locally") {
  const auto by_rank = results_in_ranks(2, [](const std::shared_ptr<World>& world) {
    const SmallNet net;
    bool right = true;
    const auto is_local = [&](int step) {
      clear(net.parameters);
      accumulate(net, samples(world->rank(), step));
      const bool is = equal_bits(gradients_of(net.parameters), local_gradients(net, samples(world->rank(), step)));
      clear(net.parameters);
      return is;
    };
    {
      DataParallel parallel(world, net.parameters, net.buffers);
      right = right && is_local(0);
      reduce(parallel, net, samples(world->rank(), 1));
      right = right && is_local(2);
      reduce(parallel, net, samples(world->rank(), 3));
    }
    return right && is_local(4);
  });
  for (const bool right : by_rank) CHECK(right);
}

TEST_CASE("Averaged gradients can be detached in place and set to zero, as zero_grad(false) does") {
  const auto by_rank = results_in_ranks(2, [](const std::shared_ptr<World>& world) {
    const SmallNet net;
    DataParallel parallel(world, net.parameters, net.buffers);
    double worst = 0;
    for (int step = 0; step < 4; ++step) {
      for (const auto& [name, tensor] : net.parameters)
        if (tensor.grad().defined()) tensor.mutable_grad().detach_().zero_();
      reduce(parallel, net, samples(world->rank(), step));
      const Gradients mean = mean_of({local_gradients(net, samples(0, step)), local_gradients(net, samples(1, step))});
      worst = std::max(worst, difference(gradients_of(net.parameters), mean));
    }
    return worst;
  });
  for (const double worst : by_rank) CHECK(worst < 1e-6);
}

TEST_CASE("Calls out of order are errors") {
  const auto errors = errors_in_ranks(2, [](const std::shared_ptr<World>& world) {
    const SmallNet net;
    DataParallel parallel(world, net.parameters, net.buffers);
    parallel.before_forward();
    parallel.before_backward({net.forward(samples(0, 0))});
    parallel.before_forward();
  });
  for (const std::string& error : errors)
    CHECK(error.find("was not completed by after_backward()") != std::string::npos);
  const auto others = errors_in_ranks(2, [](const std::shared_ptr<World>& world) {
    const SmallNet net;
    DataParallel parallel(world, net.parameters, net.buffers);
    parallel.after_backward();
  });
  for (const std::string& error : others) CHECK(error.find("needs before_backward() first") != std::string::npos);
}

TEST_CASE("A sparse gradient is an error with the parameter's name") {
  const auto errors = errors_in_ranks(2, [](const std::shared_ptr<World>& world) {
    const at::Tensor table = at::ones({5, 3}).requires_grad_();
    DataParallel parallel(world, {{"table", table}}, {});
    parallel.before_forward();
    const at::Tensor out = at::embedding(table, at::arange(3), -1, false, /*sparse=*/true);
    parallel.before_backward({out});
    out.sum().backward();
  });
  for (const std::string& error : errors) CHECK(error.find("the sparse gradient of table") != std::string::npos);
}

TEST_CASE("With one rank gradients are what they were") {
  const SmallNet net;
  DataParallel parallel(World::alone(), net.parameters, net.buffers);
  reduce(parallel, net, samples(0, 0));
  CHECK(equal_bits(gradients_of(net.parameters), local_gradients(net, samples(0, 0))));
  parallel.take_part();
  CHECK(equal_bits(gradients_of(net.parameters), local_gradients(net, samples(0, 0))));
}

TEST_CASE("DataParallel matches the tensors that it was made for, in their order and as they were") {
  const SmallNet net;
  const DataParallel parallel(World::alone(), net.parameters, net.buffers);
  std::vector<at::Tensor> tensors;
  for (const auto& [name, tensor] : net.parameters) tensors.push_back(tensor);
  CHECK(parallel.matches(tensors));
  std::vector<at::Tensor> fewer(tensors.begin(), tensors.end() - 1), swapped = tensors;
  std::swap(swapped[0], swapped[1]);
  CHECK_FALSE(parallel.matches(fewer));
  CHECK_FALSE(parallel.matches(swapped));
  tensors[0].set_data(tensors[0].detach().to(at::kDouble));
  CHECK_FALSE(parallel.matches(tensors));
}

}  // namespace
}  // namespace composer::dist::test::data_parallel_test
