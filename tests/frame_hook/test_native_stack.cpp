// What is left of a thread's stack, and the dicts of classes, on each CPython.
#include "frame_hook/native_stack.h"

#include <pthread.h>
#include <sys/mman.h>

#include <cstring>

#include "frame_hook/cpython_internals.h"
#include "tests/frame_hook/support.h"

namespace framejit::testing {
namespace {

// Runs `body` on a thread whose stack has this size. The memory is ours: the C
// library would give a larger one that another thread left behind.
template <class Body>
void on_thread(size_t stack, Body body) {
  void* memory = mmap(nullptr, stack, PROT_READ | PROT_WRITE,
                      MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
  ASSERT_NE(memory, MAP_FAILED);
  pthread_attr_t attributes;
  ASSERT_EQ(pthread_attr_init(&attributes), 0);
  ASSERT_EQ(pthread_attr_setstack(&attributes, memory, stack), 0);
  pthread_t thread;
  auto run = [](void* argument) -> void* {
    (*static_cast<Body*>(argument))();
    return nullptr;
  };
  ASSERT_EQ(pthread_create(&thread, &attributes, run, &body), 0);
  pthread_join(thread, nullptr);
  pthread_attr_destroy(&attributes);
  munmap(memory, stack);
}

constexpr size_t kSizes[] = {64 * 1024, 128 * 1024, 256 * 1024, 8 * 1024 * 1024,
                             64 * 1024 * 1024};

// Goes down until the stack is low. The deepest call has still room.
[[gnu::noinline]] size_t go_down(size_t* levels) {
  volatile char frame[512];
  memset(const_cast<char*>(frame), 1, sizeof(frame));
  if (native_stack_low()) return native_stack_left();
  ++*levels;
  size_t left = go_down(levels);
  frame[0] = 2;
  return left;
}

TEST(NativeStack, RecursionEndsOnStacksOfAllSizes) {
  for (size_t size : kSizes) {
    on_thread(size, [size] {
      size_t at_start = native_stack_left();
      EXPECT_GT(at_start, size / 2) << size;
      EXPECT_LE(at_start, size);
      size_t levels = 0;
      size_t left = go_down(&levels);
      EXPECT_GT(levels, size / 2048) << size;
      EXPECT_GT(left, std::min(kWalkReserve, size / 4) / 2) << size;
    });
  }
}

TEST(NativeStack, SmallStacksBeginNoCapture) {
  for (size_t size : kSizes) {
    on_thread(size, [size] {
      EXPECT_EQ(low_for_capture(), size < kCaptureReserve) << size;
      EXPECT_FALSE(native_stack_low()) << size;
      EXPECT_FALSE(low_for_hook()) << size;
    });
  }
}

TEST(NativeStack, TheMainThreadHasItsOwn) {
  EXPECT_FALSE(low_for_capture());
  EXPECT_FALSE(native_stack_half_used());
  EXPECT_GT(native_stack_left(), size_t(1024 * 1024));
}

// From CPython 3.12 on tp_dict of a static type is null.
TEST(NativeStack, EveryClassHasADict) {
  Namespace ns(
      "found, todo = {object}, [object]\n"
      "while todo:\n"
      "  for c in type.__subclasses__(todo.pop()):\n"
      "    if c not in found:\n"
      "      found.add(c); todo.append(c)\n"
      "found = list(found)");
  Ref classes = ns.get("found");
  ASSERT_GT(PyList_GET_SIZE(classes.get()), 100);
  for (Py_ssize_t i = 0; i < PyList_GET_SIZE(classes.get()); ++i) {
    PyObject* type = PyList_GET_ITEM(classes.get(), i);
    Ref dict = internals::own_dict(reinterpret_cast<PyTypeObject*>(type));
    ASSERT_TRUE(dict);
    ASSERT_TRUE(PyDict_CheckExact(dict.get()));
    Ref shown = Ref::steal(PyObject_GetAttrString(type, "__dict__"));
    ASSERT_TRUE(shown);
    EXPECT_EQ(PyDict_GET_SIZE(dict.get()), PyMapping_Size(shown.get()))
        << reinterpret_cast<PyTypeObject*>(type)->tp_name;
  }
}

}  // namespace
}  // namespace framejit::testing
