// As much of Foundation as a Metal kernel uses, with the types that Apple documents.
#pragma once
#include <dispatch/dispatch.h>
typedef unsigned long NSUInteger;
typedef signed char BOOL;
#define nil nullptr
#define MIN(a, b) ((a) < (b) ? (a) : (b))
__attribute__((objc_root_class)) @interface NSObject
@end
@interface NSString : NSObject
+ (NSString *)stringWithUTF8String:(char const *)text;
@property(readonly) char const *UTF8String;
@end
@interface NSError : NSObject
@property(readonly) NSString *localizedDescription;
@end
