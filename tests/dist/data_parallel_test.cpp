#include "composer/dist/data_parallel.h"

#include <algorithm>
#include <string>
#include <vector>

#include <ATen/ATen.h>

#include <doctest/doctest.h>

#include "composer/core/error.h"
#include "tests/dist/in_ranks.h"
#include "tests/dist/small_net.h"

namespace composer::dist::test {
namespace {

// A step whose backward pass reduces.
void reduce(DataParallel& parallel, const SmallNet& net, const at::Tensor& x, int head = 2) {
  parallel.before_forward();
  const at::Tensor out = net.forward(x, head);
  parallel.before_backward({out});
  out.pow(2).sum().backward();
  parallel.after_backward();
}

// A backward pass that adds up locally.
void accumulate(const SmallNet& net, const at::Tensor& x, int head = 2) {
  net.forward(x, head).pow(2).sum().backward();
}

// The gradients of a step on a rank without others.
Gradients local_gradients(const SmallNet& like, const at::Tensor& x, int head = 2) {
  SmallNet net(x.scalar_type());
  for (std::size_t i = 0; i < net.parameters.size(); ++i) net.tensor(i).detach().copy_(like.tensor(i).detach());
  accumulate(net, x, head);
  return gradients_of(net.parameters);
}

void descend(const SmallNet& net) {
  const at::NoGradGuard no_grad;
  for (const auto& [name, tensor] : net.parameters)
    if (tensor.grad().defined()) tensor.sub_(tensor.grad(), 0.01);
  clear(net.parameters);
}

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
    const auto by_rank = in_ranks(row.ranks, [&](const std::shared_ptr<World>& world) {
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

TEST_CASE("Of several microbatches only the last reduces, all that has been added up") {
  struct Result {
    double before_last, after_last;
  };
  const auto results = in_ranks(2, [](const std::shared_ptr<World>& world) {
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

TEST_CASE("A parameter that some ranks do not use gets the mean, one that no rank uses gets no gradient") {
  for (const std::optional<bool> find_unused : {std::optional<bool>(), std::optional<bool>(true)}) {
    CAPTURE(find_unused.has_value());
    const auto by_rank = in_ranks(4, [&](const std::shared_ptr<World>& world) {
      const SmallNet net;
      DataParallel parallel(world, net.parameters, net.buffers, {.find_unused_parameters = find_unused});
      std::vector<bool> right;
      for (int step = 0; step < 5; ++step) {
        const bool all_use_0 = step % 3 == 0, by_turns = step == 1;  // else: each rank always the same
        const auto head_of = [&](int rank) { return all_use_0 ? 0 : (by_turns ? (rank + step) % 2 : rank / 2); };
        std::vector<Gradients> of_ranks;
        for (int rank = 0; rank < 4; ++rank)
          of_ranks.push_back(local_gradients(net, samples(rank, step), head_of(rank)));
        reduce(parallel, net, samples(world->rank(), step), head_of(world->rank()));
        right.push_back(difference(gradients_of(net.parameters), mean_of(of_ranks)) < 1e-6);
        right.push_back(net.tensor(3).grad().defined() == !all_use_0);
        descend(net);
      }
      return right;
    });
    for (const std::vector<bool>& right : by_rank) CHECK(right == std::vector<bool>(10, true));
  }
}

TEST_CASE("A parameter that only an earlier microbatch used is averaged") {
  const auto by_rank = in_ranks(2, [](const std::shared_ptr<World>& world) {
    const SmallNet net;
    DataParallel parallel(world, net.parameters, net.buffers);
    std::vector<double> differences;
    for (int step = 0; step < 3; ++step) {
      const auto sum_of = [&](int rank) {
        SmallNet copy;
        for (std::size_t i = 0; i < 4; ++i) copy.tensor(i).detach().copy_(net.tensor(i).detach());
        if (rank == 0) accumulate(copy, samples(0, step), 1);
        accumulate(copy, samples(rank, step + 5), 0);
        return gradients_of(copy.parameters);
      };
      if (world->rank() == 0) accumulate(net, samples(0, step), 1);
      reduce(parallel, net, samples(world->rank(), step + 5), 0);
      differences.push_back(difference(gradients_of(net.parameters), mean_of({sum_of(0), sum_of(1)})));
      descend(net);
    }
    return differences;
  });
  for (const auto& differences : by_rank)
    for (const double one : differences) CHECK(one < 1e-6);
}

TEST_CASE("A parameter without a gradient is an error on all ranks, with its name and the rank") {
  struct Row {
    const char* because;
    std::optional<bool> find_unused;
    int good_steps;
  };
  for (const Row& row : {Row{"a later step", {}, 2}, Row{"the first step", false, 0}, Row{"each must", false, 3}}) {
    CAPTURE(row.because);
    const auto errors = errors_in_ranks(4, [&](const std::shared_ptr<World>& world) {
      const SmallNet net;
      DataParallel parallel(world, net.parameters, net.buffers, {.find_unused_parameters = row.find_unused});
      for (int step = 0; step < row.good_steps; ++step) {
        reduce(parallel, net, samples(world->rank(), step));
        clear(net.parameters);
      }
      reduce(parallel, net, samples(world->rank(), 9), world->rank() == 2 ? 0 : 2);
    });
    for (const std::string& error : errors) {
      CHECK(error.find("no gradient for other head on rank 2.") != std::string::npos);
      CHECK(error.find("find_unused_parameters = true") != std::string::npos);
    }
  }
}

TEST_CASE("A rank without samples takes part in any step and gets the mean with zeros") {
  struct Row {
    std::optional<bool> find_unused;
    int absent, first, last;  // rank, steps
    bool accumulates;         // a gradient of an earlier microbatch
  };
  std::vector<Row> rows;
  for (const std::optional<bool> find_unused : {std::optional<bool>(), std::optional<bool>(true)})
    for (const int absent : {0, 2})
      for (const bool accumulates : {false, true})
        for (const auto& [first, last] : {std::pair(0, 0), std::pair(1, 1), std::pair(0, 3), std::pair(2, 2)})
          rows.push_back({find_unused, absent, first, last, accumulates});
  for (const Row& row : rows) {
    CAPTURE(row.find_unused.has_value());
    CAPTURE(row.absent);
    CAPTURE(row.first);
    CAPTURE(row.last);
    CAPTURE(row.accumulates);
    struct Result {
      Gradients all;
      double worst;
      double passes;
    };
    const auto results = in_ranks(3, [&](const std::shared_ptr<World>& world) {
      const SmallNet net;
      DataParallel parallel(world, net.parameters, net.buffers, {.find_unused_parameters = row.find_unused});
      Result result{{}, 0, 0};
      for (int step = 0; step < 5; ++step) {
        const bool one_is_absent = step >= row.first && step <= row.last;
        const int head = row.find_unused && step == 2 ? 0 : 2;  // with unused parameters
        std::vector<Gradients> of_ranks;
        for (int rank = 0; rank < 3; ++rank) {
          Gradients local = local_gradients(net, samples(rank, step), head);
          if (one_is_absent && rank == row.absent)
            local = row.accumulates ? local_gradients(net, samples(rank, step + 7), head) : Gradients(4);
          of_ranks.push_back(std::move(local));
        }
        if (!one_is_absent || world->rank() != row.absent) {
          reduce(parallel, net, samples(world->rank(), step), head);
        } else {
          if (row.accumulates) accumulate(net, samples(world->rank(), step + 7), head);
          parallel.take_part();
        }
        const Gradients reduced = gradients_of(net.parameters);
        result.worst = std::max(result.worst, difference(reduced, mean_of(of_ranks)));
        result.all.insert(result.all.end(), reduced.begin(), reduced.end());
        descend(net);
      }
      parallel.before_forward();
      result.passes = net.buffers[0].second.item<double>();
      return result;
    });
    for (const Result& result : results) {
      CHECK(result.worst < 1e-6);
      CHECK(equal_bits(result.all, results.front().all));
      CHECK(result.passes == results.front().passes);
    }
  }
}

TEST_CASE("Steps in which no rank has samples decide nothing and leave gradients undefined") {
  const auto by_rank = in_ranks(2, [](const std::shared_ptr<World>& world) {
    const SmallNet net;
    DataParallel parallel(world, net.parameters, net.buffers);
    parallel.take_part();
    const bool undefined = difference(gradients_of(net.parameters), Gradients(4)) == 0;
    reduce(parallel, net, samples(world->rank(), 0), 0);  // some parameters are unused: this step decides
    clear(net.parameters);
    reduce(parallel, net, samples(world->rank(), 1), 1);
    clear(net.parameters);
    parallel.take_part();
    return undefined && difference(gradients_of(net.parameters), Gradients(4)) == 0;
  });
  for (const bool undefined : by_rank) CHECK(undefined);
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
      {"gradients_in_bf16 = 0, broadcast_buffers = 1; rank 1 has bucket_cap_mb = 25, find_unused_parameters = unset, "
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
    const auto results = in_ranks(4, [&](const std::shared_ptr<World>& world) {
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
      const auto by_rank = in_ranks(ranks, [&](const std::shared_ptr<World>& world) {
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

TEST_CASE("A thousand parameters of several dtypes and one without elements are averaged in several buckets") {
  const auto by_rank = in_ranks(2, [](const std::shared_ptr<World>& world) {
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

TEST_CASE("An element-free parameter that only some ranks use is defined on all or on none") {
  const auto by_rank = in_ranks(2, [](const std::shared_ptr<World>& world) {
    const at::Tensor weight = at::ones({3}).requires_grad_(), empty = at::ones({0}).requires_grad_();
    DataParallel parallel(world, {{"weight", weight}, {"empty", empty}}, {}, {.find_unused_parameters = true});
    std::vector<bool> defined;
    for (const int users : {0, 1, 2}) {
      parallel.before_forward();
      at::Tensor loss = weight.sum();
      if (world->rank() < users) loss = loss + empty.sum();
      parallel.before_backward({loss});
      loss.backward();
      parallel.after_backward();
      defined.push_back(empty.grad().defined());
      weight.mutable_grad().reset();
      empty.mutable_grad().reset();
    }
    return defined;
  });
  for (const std::vector<bool>& defined : by_rank) CHECK(defined == std::vector<bool>{false, true, true});
}

TEST_CASE("A backward pass outside of a step, and one after the end of DataParallel, adds up locally") {
  const auto by_rank = in_ranks(2, [](const std::shared_ptr<World>& world) {
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
  const auto by_rank = in_ranks(2, [](const std::shared_ptr<World>& world) {
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

// A tied weight in two segments: each has a backward pass of its own that adds to the gradient.
at::Tensor checkpointed(const SmallNet& net, const at::Tensor& x) {
  const auto layer = [&](const at::Tensor& in) {
    return at::tanh(at::linear(in, net.tensor(0).matmul(net.tensor(0).t())));
  };
  const at::Tensor narrow = at::linear(x, net.tensor(0));
  const at::Tensor once = checkpoint(layer, narrow), twice = checkpoint(layer, once);
  const at::Tensor hidden = at::tanh(at::linear(twice, net.tensor(1)));
  return at::linear(hidden, net.tensor(2)) * at::linear(hidden, net.tensor(3));
}

TEST_CASE("Gradients that checkpoint() segments complete late are averaged as a whole") {
  for (const std::optional<bool> find_unused : {std::optional<bool>(), std::optional<bool>(true)}) {
    const auto by_rank = in_ranks(2, [&](const std::shared_ptr<World>& world) {
      const SmallNet net;
      DataParallel parallel(world, net.parameters, net.buffers, {.find_unused_parameters = find_unused});
      double worst = 0;
      for (int step = 0; step < 3; ++step) {
        std::vector<Gradients> of_ranks;
        for (int rank = 0; rank < 2; ++rank) {
          const SmallNet copy;
          checkpointed(copy, samples(rank, step)).pow(2).sum().backward();
          of_ranks.push_back(gradients_of(copy.parameters));
        }
        parallel.before_forward();
        const at::Tensor out = checkpointed(net, samples(world->rank(), step));
        parallel.before_backward({out});
        out.pow(2).sum().backward();
        parallel.after_backward();
        worst = std::max(worst, difference(gradients_of(net.parameters), mean_of(of_ranks)));
        clear(net.parameters);
      }
      return worst;
    });
    for (const double worst : by_rank) CHECK(worst < 1e-6);
  }
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
}  // namespace composer::dist::test
