// Style sheets are bundled by esbuild; to the compiler they are nothing.
declare module '*.css';
