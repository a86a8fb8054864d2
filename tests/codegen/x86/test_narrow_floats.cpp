// Rounding to bf16, of all bits that elements can have, and the forms that
// values of f16 are kept in.
#include "tests/codegen/x86/harness.h"

namespace framejit::codegen {
namespace {

struct Case {
  const char* name;
  const char* body;  // of bf16 values v6 and v7 (as f32) and any f32, v5
};

const Case kCases[] = {
    {"any f32", "v8: bf16 = cast v5"},
    {"what is one", "v8: bf16 = cast v6"},
    {"twice", R"(v8: bf16 = cast v5
    v9: f32 = cast v8
    v10: bf16 = cast v9)"},
    {"a product", R"(v8: f32 = mul v6, v7
    v9: bf16 = cast v8)"},
    {"a quotient", R"(v8: f32 = div v6, v7
    v9: bf16 = cast v8)"},
    {"a root", R"(v8: f32 = sqrt v6
    v9: bf16 = cast v8)"},
    {"arithmetic on any f32", R"(v8: f32 = mul v6, v5
    v9: f32 = sub v8, v7
    v10: bf16 = cast v9)"},
    {"signs and extremes", R"(v8: f32 = neg v6
    v9: f32 = abs v7
    v10: f32 = max v8, v9
    v11: f32 = min v10, v6
    v12: bf16 = cast v11)"},
    {"an extreme of any f32", R"(v8: f32 = max v6, v5
    v9: bf16 = cast v8)"},
    {"a constant that is none", R"(v8: f32 = const 0.1
    v9: f32 = add v6, v8
    v10: f32 = max v9, v8
    v11: bf16 = cast v10)"},
    {"a chain", R"(v8: f32 = mul v6, v7
    v9: bf16 = cast v8
    v10: f32 = cast v9
    v11: f32 = add v10, v7
    v12: bf16 = cast v11
    v13: f32 = cast v12
    v14: f32 = const 0
    v15: f32 = max v13, v14
    v16: bf16 = cast v15
    v17: f32 = cast v16
    v18: f32 = sub v17, v6
    v19: bf16 = cast v18)"},
    {"a choice", R"(v8: b8 = lt v6, v7
    v9: f32 = mul v6, v7
    v10: bf16 = cast v9
    v11: bf16 = select v8, v10, v3
    v12: f32 = cast v11
    v13: f32 = add v12, v12
    v14: bf16 = cast v13)"},
    {"of other types afterwards", R"(v8: bf16 = cast v5
    v9: f64 = cast v8
    v10: f16 = cast v8
    v11: f64 = cast v10
    v12: f64 = add v9, v11
    v13: bf16 = cast v12)"},
};

TEST(X86NarrowFloats, RoundAsTheInterpreter) {
  for (const Case& each : kCases) {
    const std::string body = each.body;
    // The last value is stored.
    const size_t last = body.rfind("v", body.rfind(':'));
    const std::string stored = body.substr(last, body.find(':', last) - last);
    for (const char* way : {"outer (i0 < s0) columns", "outer () inner"}) {
      const bool columns = way[6] == '(' && way[7] == 'i';
      Kernel kernel = kernel_of(
          std::string("kernel k(%0: i16, %1: i16, %2: i32, %3: out bf16) ") +
          way + " {\n  stage " + (columns ? "()" : "(i0 < s0)") + R"( {
    v0: i16 = load %0[i0]
    v1: i16 = load %1[i0]
    v2: i32 = load %2[i0]
    v3: bf16 = bitcast v0
    v4: bf16 = bitcast v1
    v5: f32 = bitcast v2
    v6: f32 = cast v3
    v7: f32 = cast v4
    )" + body +
          "\n    store %3[i0] = " + stored + "\n  }\n}\n");
      Comparison comparison(kernel, {20011}, std::vector<Data>(4, {0, 20011}));
      ASSERT_TRUE(comparison.run()) << each.name;
    }
  }
}

// Loads, conversions and stores of f16 and bf16, read by conversions alone, by
// stores alone, and by others besides; side by side, backwards, apart, one for
// all.
TEST(X86NarrowFloats, HalvesInAllForms) {
  for (const char* type : {"f16", "bf16"})
    for (const char* from : {"i0", "i0*(-1)", "i0*2", "0"}) {
      for (const char* to : {"i0", "i0*2"}) {
        for (const char* stored : {"v9", "v6", "v1"}) {
          for (bool columns : {false, true}) {
            const std::string way =
                columns ? "outer (i0 < s0) columns" : "outer () inner";
            std::string text =
                "kernel k(%0: f16, %1: f32, %2: b8, %3: out f16, %4: out "
                "f32) " +
                way + " {\n  stage " + (columns ? "()" : "(i0 < s0)") +
                " {\n    v0: b8 = load %2[i0]\n    v1: f16 = load %0[" + from +
                R"(]
    v2: f32 = load %1[i0]
    v3: f32 = cast v1
    v4: f32 = add v3, v2
    v5: f16 = cast v4
    v6: f16 = cast v2
    v7: f32 = cast v5
    v8: f32 = mul v7, v2
    v9: f16 = cast v8
    store %3[)" +
                to + "] when v0 = " + stored + R"(
    store %4[i0] = v7
  }
}
)";
            for (size_t at = 0;
                 std::string(type) != "f16" &&
                 (at = text.find("f16", at)) != std::string::npos;
                 at += 4)
              text.replace(at, 3, type);
            Kernel kernel = kernel_of(text);
            for (int64_t size : {1, 7, 16, 33, 1000}) {
              const std::string walk = from;
              Data in{0, walk == "i0*2" ? 2 * size : size, Data::kTame};
              if (walk == "i0*(-1)") in = Data{size - 1, 1, Data::kTame};
              Comparison comparison(kernel, {size},
                                    {in,
                                     {0, size, Data::kMixed},
                                     {0, size, Data::kIndices, 2},
                                     {0, 2 * size},
                                     {0, size}});
              ASSERT_TRUE(comparison.run()) << from << " " << to << stored;
            }
          }
        }
      }
    }
}

}  // namespace
}  // namespace framejit::codegen
